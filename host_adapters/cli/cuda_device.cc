#include "host_adapters/cli/cuda_device.h"

#include <array>
#include <boost/dll/shared_library.hpp>
#include <system_error>

#include "millpond/error.hpp"

namespace millpond::cli {

// The driver's functions, as its header declares them: stable since CUDA 11.
struct CudaDevice::Driver {
  using Address = unsigned long long;
  boost::dll::shared_library library;
  int (*init)(unsigned);
  int (*error_name)(int, const char**);
  int (*device_get)(int*, int);
  int (*device_name)(char*, int, int);
  int (*retain)(void**, int);
  int (*release)(int);
  int (*set_current)(void*);
  int (*memory_info)(std::size_t*, std::size_t*);
  int (*take)(Address*, std::size_t);
  int (*give_back)(Address);
  int (*upload)(Address, const void*, std::size_t);
  int (*copy)(Address, Address, std::size_t);
  int (*make_stream)(void**, unsigned);
  int (*destroy_stream)(void*);
  int (*synchronize)(void*);

  Driver() {
    std::error_code code;
    library.load("libcuda.so.1", boost::dll::load_mode::search_system_folders, code);
    if (code) {
      throw Error(MILLPOND_E_DEVICE, "open the CUDA driver", "libcuda.so.1 is not there")
          .field("--device")
          .remedy("Install NVIDIA's driver, or use --device cpu");
    }
    find(init, "cuInit");
    find(error_name, "cuGetErrorName");
    find(device_get, "cuDeviceGet");
    find(device_name, "cuDeviceGetName");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(release, "cuDevicePrimaryCtxRelease_v2");
    find(set_current, "cuCtxSetCurrent");
    find(memory_info, "cuMemGetInfo_v2");
    find(take, "cuMemAlloc_v2");
    find(give_back, "cuMemFree_v2");
    find(upload, "cuMemcpyHtoD_v2");
    find(copy, "cuMemcpyDtoD_v2");
    find(make_stream, "cuStreamCreate");
    find(destroy_stream, "cuStreamDestroy_v2");
    find(synchronize, "cuStreamSynchronize");
  }

 private:
  template <class Result, class... Arguments>
  void find(Result (*&function)(Arguments...), const char* name) {
    if (!library.has(name)) {
      throw Error(MILLPOND_E_DEVICE, "open the CUDA driver", std::string("it has no ") + name)
          .field("--device")
          .remedy("Install a newer driver");
    }
    function = &library.get<Result(Arguments...)>(name);
  }
};

namespace {

constexpr int kOutOfMemory = 2;
constexpr unsigned kNonBlocking = 1;

unsigned long long address_of(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace

CudaDevice::CudaDevice(std::int32_t index)
    : driver_(std::make_unique<const Driver>()), index_(index) {
  check(driver_->init(0), "start the CUDA driver");
  check(driver_->device_get(&device_, index), "find the CUDA device");
  std::array<char, 256> name{};
  check(driver_->device_name(name.data(), name.size() - 1, device_), "name the CUDA device");
  name_ = name.data();
  check(driver_->retain(&context_, device_), "make the device's context");
  use();
  check(driver_->make_stream(&stream_, kNonBlocking), "make a stream");
}

CudaDevice::~CudaDevice() {
  static_cast<void>(driver_->destroy_stream(stream_));
  static_cast<void>(driver_->release(device_));
}

void CudaDevice::check(int code, const char* what) const {
  if (code == 0) return;
  const char* name = nullptr;
  if (driver_->error_name(code, &name) != 0 || name == nullptr) name = "an unknown error";
  throw Error(code == kOutOfMemory ? MILLPOND_E_MEMORY : MILLPOND_E_DEVICE, what, name)
      .field("--device")
      .remedy(code == kOutOfMemory ? "Ask for fewer --params, or free memory of the device"
                                   : "Look at nvidia-smi and CUDA_VISIBLE_DEVICES");
}

millpond_stream CudaDevice::stream() const {
  return {MILLPOND_DEVICE_CUDA, index_, reinterpret_cast<std::uintptr_t>(stream_)};
}

void CudaDevice::use() const { check(driver_->set_current(context_), "use the device's context"); }

std::uint64_t CudaDevice::free_bytes() const {
  std::size_t free = 0, total = 0;
  check(driver_->memory_info(&free, &total), "ask for the device's memory");
  return free;
}

void CudaDevice::synchronize() const { check(driver_->synchronize(stream_), "wait for a stream"); }

std::byte* CudaDevice::take(std::uint64_t bytes) const {
  Driver::Address address = 0;
  check(driver_->take(&address, bytes), "take device memory");
  return reinterpret_cast<std::byte*>(address);
}

void CudaDevice::give_back(std::byte* memory) const noexcept {
  static_cast<void>(driver_->give_back(address_of(memory)));
}

void CudaDevice::upload(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
  check(driver_->upload(address_of(to), from, bytes), "upload");
}

void CudaDevice::copy(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
  check(driver_->copy(address_of(to), address_of(from), bytes), "copy on the device");
}

}  // namespace millpond::cli
