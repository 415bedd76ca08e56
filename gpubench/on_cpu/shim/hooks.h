// The functions that g++ -fsanitize=thread calls before each access. They pass the access to
// `record`, which the file that includes this header defines.

extern "C" {
#define HOOK(name, bytes, kind)                                                              \
  void name(void* address) {                                                                 \
    record(reinterpret_cast<uintptr_t>(__builtin_return_address(0)), {}, address, bytes, kind); \
  }
#define HOOKS(bytes)                                          \
  HOOK(__tsan_read##bytes, bytes, READ)                       \
  HOOK(__tsan_write##bytes, bytes, WRITE)                     \
  HOOK(__tsan_unaligned_read##bytes, bytes, READ)             \
  HOOK(__tsan_unaligned_write##bytes, bytes, WRITE)           \
  HOOK(__tsan_volatile_read##bytes, bytes, READ)              \
  HOOK(__tsan_volatile_write##bytes, bytes, WRITE)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* address, size_t bytes) {
  record(reinterpret_cast<uintptr_t>(__builtin_return_address(0)), {}, address, bytes, READ);
}
void __tsan_write_range(void* address, size_t bytes) {
  record(reinterpret_cast<uintptr_t>(__builtin_return_address(0)), {}, address, bytes, WRITE);
}
#define ATOMIC_HOOKS(bits, type)                                                                  \
  type __tsan_atomic##bits##_load(const volatile type* address, int) {                             \
    record(reinterpret_cast<uintptr_t>(__builtin_return_address(0)), {},                           \
           const_cast<const type*>(address), sizeof(type), READ);                                  \
    return *address;                                                                               \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile type* address, type value, int) {                      \
    record(reinterpret_cast<uintptr_t>(__builtin_return_address(0)), {},                           \
           const_cast<const type*>(address), sizeof(type), WRITE);                                 \
    *address = value;                                                                              \
  }
ATOMIC_HOOKS(32, uint32_t)
ATOMIC_HOOKS(64, uint64_t)
void on_cpu_access(const void* address, size_t bytes, char kind, const char* file, int line) {
  record(0, {file, line}, address, bytes, static_cast<Kind>(kind));
}
}
