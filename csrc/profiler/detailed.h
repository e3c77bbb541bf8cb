// The profiler's detailed mode: for each counted operator of one step its storages, arithmetic, time and memory.
#pragma once

#include "profiler/clock.h"
#include "profiler/displaced.h"
#include "profiler/operators.h"
#include "profiler/storages.h"

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace bayplan {

// What launching an operator costs, in nanoseconds.
struct LaunchTimes {
  int64_t device;       // the device's own time: the host is far ahead
  int64_t launch;       // the host's own time until all is issued, the device being idle
  int64_t end;          // from the host's begin to the operator's end, the device being idle; 0 where nothing ran
  int64_t host_waited;  // the host waited, as bits: for the operator (1), the stream (2), the device (4)
  int64_t read;         // what copies to the host took that it waited for
  int64_t sent;         // what others took, that nobody waited for
  int64_t beside;       // what ran on other streams took
  int64_t stream;       // the stream that all but `beside` is of
};

// Whether a recorder takes the reports of memory on the calling thread, and tells its `report_listener` of them.
bool recorded_here();

// Where a device knows what launching costs, it says so: the eight numbers of `LaunchTimes` for all that ran on the
// current stream since the last call.
using LaunchMeter = void (*)(int64_t* numbers);
void set_launch_meter(c10::DeviceType device, LaunchMeter meter);
// Asks the meter for somebody else than a recorder; nothing where the device does not tell, is not the thread's own, or
// a recorder runs there, which would miss what others have read.
std::optional<LaunchTimes> read_launches(c10::Device device);

// One counted operator. Lists are storage numbers in flattened argument order; a storage may repeat (two views of it).
struct OperatorRecord {
  const OperatorInfo* op;
  Range range;
  bool accumulation;  // ran while autograd stored a gradient into a leaf
  uint64_t thread;    // PyTorch's own number of the thread
  int64_t sequence;   // autograd's sequence number; −1 outside of autograd
  int64_t flops = 0;  // by the rules of flops.h; 0 where there is none or nothing is timed
  int64_t bytes = 0;  // read and written, each argument and result counted once, a view by its own size
  int64_t live_start_bytes = 0;
  int64_t peak_bytes = 0;  // the most in use since the previous operator's end
  int64_t live_end_bytes = 0;
  int64_t allocated_peak_bytes = 0;  // as peak_bytes, but what was really on the device
  int64_t displaced_bytes = 0;       // kept off the device by swapping, at the end
  std::vector<uint32_t> inputs;
  std::vector<uint32_t> outputs;      // returned, then written without being returned
  std::vector<uint32_t> written;      // inputs that the schema says are written to
  std::optional<LaunchTimes> launch;  // where the device tells and the recorder is timed
};

// What an allocator reported: bytes taken for a block (positive) or given back (negative), inside which operator
// (−1 − n: between two, when n had begun), and the thread's current stream where bytes were taken.
struct MemoryReport {
  uint64_t block;
  int64_t bytes;
  int64_t op;
  int64_t stream;
};

class Recordings;

// Records the thread that starts it and the autograd threads that work for it, until stopped. One at a time of
// each device.
//
// Memory comes from the allocator's reports, which PyTorch delivers to the one profiler of a thread: so a
// `torch.profiler` must not run at the same time. On a CPU the reports begin with the recording; what was there before
// is the storages given to `start`, each until it is freed. Levels and peaks are those of a step without swapping: what
// is allocated, and what swapping keeps off the device meanwhile (displaced.h).
class DetailedRecorder {
 public:
  // `timed`: whether to note the clock at each operator's end and to count arithmetic, or only what a policy from
  // limited information needs.
  explicit DetailedRecorder(c10::Device device, bool timed = true);
  ~DetailedRecorder();
  DetailedRecorder(const DetailedRecorder&) = delete;
  DetailedRecorder& operator=(const DetailedRecorder&) = delete;

  // Throws if another recording or a torch.profiler runs. `resident`: tensors alive now; read on a CPU only.
  void start(const std::vector<at::Tensor>& resident);

  // Removes every trace of the recorder from the thread; safe to call twice. Call it from the thread of `start`.
  void stop();

  const std::vector<OperatorRecord>& operators() const { return operators_; }
  const StorageTable& storages() const { return storages_; }

  // All that the device's allocator reported, in order.
  const std::vector<MemoryReport>& requests() const { return requests_; }

  // Nanoseconds from the start to each operator's end, if timed, then to the stop.
  std::vector<int64_t> elapsed_ns() { return clock_.elapsed_ns(); }

  // The host's own nanoseconds, without the recorder's, to the same moments.
  std::vector<int64_t> host_elapsed_ns() const { return clock_.host_elapsed_ns(); }

  // What went wrong inside the recorder itself, or empty. PyTorch swallows a callback's exceptions, so they are kept.
  const std::string& failure() const { return failure_; }

  // Whether a compiled region ran, whose kernels never pass the dispatcher.
  bool saw_compiled_code() const { return compiled_; }

  // Called by PyTorch on any of the threads.
  void on_start(const at::RecordFunction& frame);
  void on_end(const at::RecordFunction& frame);
  void on_memory(const void* block, int64_t bytes, size_t total_bytes, c10::Device device);
  void on_leaving(c10::StorageImpl& storage);

 private:
  void join(Recordings* together);
  void leave();
  void register_resident(const std::vector<at::Tensor>& resident);
  void begin_operator(const at::RecordFunction& frame);
  void end_operator(const at::RecordFunction& frame, int64_t host_ns);
  void count_arithmetic(const at::RecordFunction& frame, const OperatorInfo* info);
  void note_inner_results(const at::RecordFunction& frame);
  void begin_accumulation(const at::RecordFunction& frame);
  void end_accumulation();
  void add_tensor(const at::Tensor& tensor, bool written, bool result);
  void settle_gradients(OperatorRecord& record);
  void raise_peaks();
  void raise_by_return();
  void settle_returns();
  void note_request(const void* block, int64_t bytes, int64_t op);

  std::optional<LaunchTimes> read_launches() const;

  // Host time at which bookkeeping begins; 0 where nothing is timed.
  int64_t entered() const { return timed_ ? host_now_ns() : 0; }
  void exclude_since(int64_t entered);

  int64_t displaced() const { return device_.is_cpu() ? 0 : displaced_bytes[device_].load(std::memory_order_relaxed); }
  // In use now, if nothing were swapped.
  int64_t level() const { return allocated_bytes_ + displaced(); }

  template <typename Body>
  void guarded(Body body);

  c10::Device device_;
  bool timed_;
  std::mutex mutex_;
  StorageTable storages_;
  StepClock clock_;
  std::vector<OperatorRecord> operators_;
  std::vector<MemoryReport> requests_;
  int64_t allocated_bytes_ = 0;  // on the device, by the latest report
  bool registering_ = false;
  int64_t window_peak_bytes_ = 0;
  int64_t window_allocated_peak_bytes_ = 0;
  int64_t returned_peak_bytes_ = 0;  // in the window, as storages came back
  int open_ = 0;
  std::string failure_;
  bool compiled_ = false;
  bool running_ = false;
  int log_level_ = 0;    // the process's own, while the recorder has another
  uint64_t number_ = 0;  // of this recording among all
};

}  // namespace bayplan
