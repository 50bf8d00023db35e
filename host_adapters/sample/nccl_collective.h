// Collective over NCCL: one process a GPU, buffers in device memory, work in the order of the
// device's stream. Host buffers, which are small, go through device memory. Built only where NCCL
// is (MILLPOND_SAMPLE_NCCL).
//
// The communicator's id travels through the ranks' meeting. Nothing waits inside NCCL: every wait
// here looks at the stream, at ncclCommGetAsyncError, at who has ended, and at the clock; where one
// of them says no, the communicator is aborted, which also ends the kernels that wait for a peer.
//
// Sums are made by this class, not by NCCL, whose order of addition depends on the number of ranks
// and the links between them: parts go straight to their owner, who adds them as a tree.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_NCCL_COLLECTIVE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_NCCL_COLLECTIVE_H_

#include <nccl.h>

#include <string>

#include "host_adapters/processes/meeting.h"
#include "host_adapters/sample/collective.h"
#include "host_adapters/sample/cuda_device.h"

namespace millpond::sample {

class NcclCollective : public Collective {
 public:
  // By all ranks. Meeting and device must outlive it.
  NcclCollective(processes::Meeting& meeting, std::uint32_t rank, CudaDevice& device);
  ~NcclCollective() override;

  std::string description() const override;
  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return meeting_.ranks(); }
  void reduce_scatter(float* send, float* receive, std::size_t count,
                      millpond_stream stream) override;
  void all_gather(const void* send, void* receive, std::size_t bytes,
                  millpond_stream stream) override;
  void finish(millpond_stream stream) override;

 private:
  // A call to NCCL that may still be under way: until it is not, or throws.
  void settle(ncclResult_t result, const char* what);
  // One look at everything that can go wrong.
  void look(const char* what, double waited_s);
  [[noreturn]] void give_up(std::int32_t code, const char* what, const std::string& why);
  void abort() noexcept;

  processes::Meeting& meeting_;
  std::uint32_t rank_;
  CudaDevice& device_;
  ncclComm_t communicator_ = nullptr;
  std::size_t staging_bytes_;
  Array<std::byte> staging_;  // what peers sent, to be summed; host buffers on their way
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_NCCL_COLLECTIVE_H_
