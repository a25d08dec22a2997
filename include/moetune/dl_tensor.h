/* DLTensor, as DLPack (dmlc/dlpack, version 1) defines it: a view of a tensor that frameworks hand
 * to each other. A program that uses dlpack.h includes it before moetune.h, and gets that one.
 *
 * A DLManagedTensor begins with its DLTensor: pass &managed->dl_tensor. moetune never calls a
 * deleter. */
#ifndef MOETUNE_DL_TENSOR_H_
#define MOETUNE_DL_TENSOR_H_

#ifndef DLPACK_DLPACK_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int32_t device_type; /* 1: CPU, 2: CUDA, 3: host memory pinned by CUDA, 13: CUDA managed */
  int32_t device_id;
} DLDevice;

typedef struct {
  uint8_t code; /* 0: int, 1: uint, 2: float, 4: bfloat, 10: float8_e4m3fn, 14: float8_e8m0fnu, */
  uint8_t bits; /* 17: float4_e2m1fn */
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* In elements; NULL: dense, row by row. */
  uint64_t byte_offset;
} DLTensor;

#ifdef __cplusplus
}
#endif

#endif /* DLPACK_DLPACK_H_ */

#endif /* MOETUNE_DL_TENSOR_H_ */
