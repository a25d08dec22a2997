/* A program that includes dlpack.h first: what follows stands for it, with its names, its
 * enumeration and its guard. */
#include <stdint.h>

#define DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 } DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

#include "moetune/moetune.h"

size_t size_of_theirs(void);
moetune_status run_theirs(moetune_layer* layer, DLManagedTensor* hidden, DLManagedTensor* logits,
                          DLManagedTensor* output);

size_t size_of_theirs(void) { return sizeof(DLTensor); }

moetune_status run_theirs(moetune_layer* layer, DLManagedTensor* hidden, DLManagedTensor* logits,
                          DLManagedTensor* output) {
  return moetune_layer_run_dl(layer, &hidden->dl_tensor, &logits->dl_tensor, &output->dl_tensor,
                              NULL);
}
