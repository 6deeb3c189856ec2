#define NCCL_VERSION_CODE <number>
