// Stands in for libcuda.so.1 of an old driver: it has the functions of its time and says which CUDA
// it serves.
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = 11080;
  return 0;
}
}
