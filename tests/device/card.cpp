/* A device for tests: calls return before their work is done, as on a GPU.
 *
 * Registers torch's PrivateUse1 backend with two cards. Each card has one queue and a thread that works it off in order:
 * what a call of a tensor on the card does is put into the queue, and the call returns. `hold` stops the thread between
 * two pieces of work, so that a test decides when the work is done; with `tick` the card has a clock of its own, which
 * moves by the cost of each piece and by nothing else, so that its times are the same on every machine.
 *
 * Memory of a card is memory of the host, given back in the order of the queue. empty, copy, fill_, zero_, add, mm, addmm and
 * relu are queued; everything else is done on the CPU, on copies, which waits for the card. */
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace {

constexpr auto TYPE = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex CARDS = 2;

int64_t host_ns()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* ---- the queue and its thread ------------------------------------------------------------------------ */

struct Work {
    std::function<void()> run;
    int64_t cost_ns;
    bool computes;
};

class Card {
  public:
    /* `computes`: it takes the card's time, and may fail; else it is a mark, or memory that is given back. */
    void put(std::function<void()> work, bool computes)
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
        queue_.push_back({std::move(work), cost_ns, computes});
        pending_ += computes;
        changed_.notify_all();
    }

    /* Returns when all is done; what failed meanwhile is raised here, as a device tells. */
    void wait()
    {
        std::string said;
        {
            std::unique_lock<std::mutex> guard(lock_);
            waits++;
            changed_.wait(guard, [this] { return queue_.empty() && !working_; });
            said.swap(failure_);
        }
        TORCH_CHECK(said.empty(), said);
    }

    int64_t pending()
    {
        std::lock_guard<std::mutex> guard(lock_);
        return pending_;
    }

    void hold(bool on)
    {
        std::lock_guard<std::mutex> guard(lock_);
        held_ = on;
        changed_.notify_all();
    }

    void end()
    {
        {
            std::lock_guard<std::mutex> guard(lock_);
            ended_ = true;
            changed_.notify_all();
        }
        if (thread_.joinable()) thread_.join();
    }

    int64_t now() const { return ticks ? tick_ns.load() : host_ns(); }

    std::atomic<int64_t> cost_ns{0}, tick_ns{0}, allocated{0}, peak{0}, waits{0};
    std::atomic<bool> ticks{false}, fails{false};

  private:
    void run()
    {
        at::InferenceMode no_gradients;
        std::unique_lock<std::mutex> guard(lock_);
        while (true) {
            changed_.wait(guard, [this] { return ended_ || (!queue_.empty() && !held_); });
            if (ended_) return;
            Work next = std::move(queue_.front());
            queue_.pop_front();
            working_ = true;
            guard.unlock();
            std::string said;
            try {
                if (next.computes && fails.exchange(false)) throw std::runtime_error("the card failed");
                next.run();
                if (next.computes && ticks) tick_ns += next.cost_ns;
                else if (next.computes) std::this_thread::sleep_for(std::chrono::nanoseconds(next.cost_ns));
            } catch (const std::exception& error) {
                said = error.what();
            }
            guard.lock();
            working_ = false;
            pending_ -= next.computes;
            if (failure_.empty()) failure_ = said;
            changed_.notify_all();
        }
    }

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<Work> queue_;
    int64_t pending_ = 0;
    std::thread thread_;
    std::string failure_;
    bool held_ = false, ended_ = false, working_ = false;
};

Card& card(c10::DeviceIndex index)
{
    static auto* cards = new Card[CARDS]; /* never freed: their threads may outlive what C++ frees at the end */
    return cards[index];
}

thread_local c10::DeviceIndex current = 0;
std::atomic<bool> capturing{false}, keeps_time{true}, tells_memory{true};

/* ---- memory ------------------------------------------------------------------------------------------ */

struct Block {
    void* data;
    int64_t size;
    c10::DeviceIndex index;
};

void give_back(void* context)
{
    auto* block = static_cast<Block*>(context);
    card(block->index).allocated -= block->size;
    void* data = block->data;
    card(block->index).put([data] { std::free(data); }, false); /* what is queued may still use it */
    delete block;
}

struct Memory final : c10::DeviceAllocator {
    c10::DataPtr allocate(size_t size) override
    {
        void* data = size ? std::aligned_alloc(64, (size + 63) / 64 * 64) : nullptr;
        TORCH_CHECK(!size || data, "the card has no more memory");
        auto& owner = card(current);
        owner.allocated += static_cast<int64_t>(size);
        owner.peak = std::max(owner.peak.load(), owner.allocated.load());
        auto* block = new Block{data, static_cast<int64_t>(size), current};
        return {data, block, &give_back, c10::Device(TYPE, current)};
    }
    void copy_data(void* to, const void* from, size_t size) const override
    {
        card(current).put([=] { std::memcpy(to, from, size); }, true);
    }
    bool initialized() override { return true; }
    void emptyCache(c10::MempoolId_t) override {}
    void recordStream(const c10::DataPtr&, c10::Stream) override {}
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(tells_memory, "the card does not tell its memory");
        c10::CachingDeviceAllocator::DeviceStats stats;
        stats.allocated_bytes[0].current = card(index).allocated;
        stats.allocated_bytes[0].peak = card(index).peak;
        return stats;
    }
    void resetAccumulatedStats(c10::DeviceIndex) override {}
    void resetPeakStats(c10::DeviceIndex index) override { card(index).peak = card(index).allocated.load(); }
};

Memory memory;
REGISTER_ALLOCATOR(TYPE, &memory)

/* ---- device, stream, events -------------------------------------------------------------------------- */

struct Moment {
    std::atomic<bool> reached{false};
    int64_t at_ns = 0;
};

struct Event {
    std::shared_ptr<Moment> moment;
    bool timing;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return TYPE; }
    c10::Device exchangeDevice(c10::Device device) const override
    {
        auto before = getDevice();
        setDevice(device);
        return before;
    }
    c10::Device getDevice() const override { return {TYPE, current}; }
    void setDevice(c10::Device device) const override
    {
        TORCH_CHECK(device.index() < CARDS, "there is no card ", int(device.index()));
        if (device.index() >= 0) current = device.index();
    }
    void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
    c10::DeviceIndex deviceCount() const noexcept override { return CARDS; }

    c10::Stream stream_of(c10::Device device) const
    {
        return c10::Stream(c10::Stream::DEFAULT, {TYPE, device.index() < 0 ? current : device.index()});
    }
    c10::Stream getStream(c10::Device device) const override { return stream_of(device); }
    c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device); }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return stream_of(device); }
    c10::Stream getNewStream(c10::Device device, int) const override { return stream_of(device); }
    c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
    bool queryStream(const c10::Stream& stream) const override { return card(stream.device_index()).pending() == 0; }
    void synchronizeStream(const c10::Stream& stream) const override { card(stream.device_index()).wait(); }
    bool isStreamCapturing(const c10::Stream&) const override { return capturing; }
    void synchronizeDevice(const c10::DeviceIndex index) const override { card(index < 0 ? current : index).wait(); }

    void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag flag) const override
    {
        TORCH_CHECK(!capturing, "an event that keeps time cannot be part of a graph");
        auto& on = card(stream.device_index());
        if (*event == nullptr) *event = new Event{nullptr, flag == c10::EventFlag::BACKEND_DEFAULT};
        auto moment = static_cast<Event*>(*event)->moment = std::make_shared<Moment>();
        on.put([moment, &on] { moment->at_ns = on.now(); moment->reached = true; }, false);
    }
    void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
    bool queryEvent(void* event) const override
    {
        TORCH_CHECK(!capturing, "no event can be asked while a graph is made");
        return event == nullptr || static_cast<Event*>(event)->moment->reached;
    }
    void synchronizeEvent(void* event) const override
    {
        while (!queryEvent(event)) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    void block(void*, const c10::Stream&) const override {} /* one queue a card: the order is kept */
    double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override
    {
        auto *one = static_cast<Event*>(begin), *two = static_cast<Event*>(end);
        TORCH_CHECK(keeps_time, "the card's events keep no time");
        TORCH_CHECK(one && two && one->timing && two->timing, "an event was made without enable_timing");
        TORCH_CHECK(one->moment->reached && two->moment->reached, "an event was not reached yet");
        return static_cast<float>(static_cast<double>(two->moment->at_ns - one->moment->at_ns) / 1e6); /* as CUDA tells it */
    }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return CARDS; }
    void setCurrentDevice(c10::DeviceIndex index) const override { Guard().setDevice({TYPE, index}); }
    c10::DeviceIndex getCurrentDevice() const override { return current; }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override
    {
        return Guard().exchangeDevice({TYPE, index}).index();
    }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override
    {
        return index < 0 ? current : exchangeDevice(index);
    }
};

/* ---- operators --------------------------------------------------------------------------------------- */

/* A tensor as the card's thread sees it: memory, not an object of torch, which would have to be let go of there. */
struct View {
    char* data;
    std::vector<int64_t> sizes, strides;
    at::ScalarType dtype;
    std::shared_ptr<std::vector<char>> own; /* of a number on the host */

    explicit View(const at::Tensor& t)
        : data(t.numel() ? static_cast<char*>(const_cast<void*>(t.const_data_ptr())) : nullptr),
          sizes(t.sizes().vec()), strides(t.strides().vec()), dtype(t.scalar_type())
    {
    }
    static View of_operand(const at::Tensor& t)
    {
        View made(t);
        if (t.is_cpu()) {
            TORCH_CHECK(t.dim() == 0, "a tensor of the card cannot be computed with one of the host");
            made.own = std::make_shared<std::vector<char>>(made.data, made.data + t.element_size());
        }
        return made;
    }
    at::Tensor tensor() const
    {
        void* at = own ? static_cast<void*>(own->data()) : data;
        return at::from_blob(at, sizes, strides, at::TensorOptions(dtype));
    }
};

using Views = std::vector<at::Tensor>;

void enqueue(const at::Tensor& out, std::initializer_list<at::Tensor> given, std::function<void(at::Tensor&, const Views&)> work)
{
    View result(out);
    std::vector<View> views;
    for (const auto& each : given) views.push_back(View::of_operand(each));
    card(out.device().index()).put([=] {
        at::Tensor to = result.tensor();
        Views from;
        for (const auto& each : views) from.push_back(each.tensor());
        work(to, from);
    }, true);
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format)
{
    c10::DeviceGuard guard(c10::device_or_default(device));
    return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>)
{
    c10::DeviceGuard guard(c10::device_or_default(device));
    return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::dtype_or_default(dtype));
}

at::Tensor like(const at::Tensor& t, c10::IntArrayRef size, at::ScalarType dtype)
{
    return empty(size, dtype, std::nullopt, t.device(), std::nullopt, std::nullopt);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool)
{
    if (to.is_cpu()) { /* memory of the program: it goes on when the values are there */
        View source(from), target(to);
        auto& on = card(from.device().index());
        on.put([=] { target.tensor().copy_(source.tensor()); }, true);
        on.wait();
    } else if (from.is_cpu()) { /* the source may change when this has returned */
        auto kept = from.contiguous();
        auto bytes = std::make_shared<std::vector<char>>(kept.nbytes());
        if (kept.nbytes()) std::memcpy(bytes->data(), kept.const_data_ptr(), kept.nbytes());
        View target(to);
        auto sizes = kept.sizes().vec();
        auto dtype = kept.scalar_type();
        card(to.device().index()).put([=] {
            target.tensor().copy_(at::from_blob(bytes->data(), sizes, at::TensorOptions(dtype)));
        }, true);
    } else {
        if (from.device() != to.device()) card(from.device().index()).wait();
        enqueue(to, {from}, [](at::Tensor& out, const Views& in) { out.copy_(in[0]); });
    }
    return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to)
{
    at::native::resize_(to, from.sizes(), std::nullopt);
    return const_cast<at::Tensor&>(to).copy_(from);
}

at::Scalar local_scalar(const at::Tensor& t) { return t.cpu().item(); }

at::Tensor& fill(at::Tensor& self, const at::Scalar& value)
{
    enqueue(self, {}, [value](at::Tensor& out, const Views&) { out.fill_(value); });
    return self;
}

at::Tensor& zero(at::Tensor& self) { return fill(self, 0); }

at::Tensor add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha)
{
    const auto& here = self.is_cpu() ? other : self;
    auto out = like(here, at::infer_size(self.sizes(), other.sizes()), at::result_type(self, other));
    enqueue(out, {self, other}, [alpha](at::Tensor& to, const Views& in) { to.copy_(at::add(in[0], in[1], alpha)); });
    return out;
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& other)
{
    TORCH_CHECK(self.dim() == 2 && other.dim() == 2 && self.size(1) == other.size(0), "mm of ", self.sizes(), " and ", other.sizes());
    auto out = like(self, {self.size(0), other.size(1)}, self.scalar_type());
    enqueue(out, {self, other}, [](at::Tensor& to, const Views& in) { at::mm_out(to, in[0], in[1]); });
    return out;
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha)
{
    auto out = like(a, {a.size(0), b.size(1)}, a.scalar_type());
    enqueue(out, {self, a, b}, [beta, alpha](at::Tensor& to, const Views& in) { at::addmm_out(to, in[0], in[1], in[2], beta, alpha); });
    return out;
}

at::Tensor relu(const at::Tensor& self)
{
    auto out = like(self, self.sizes(), self.scalar_type());
    enqueue(out, {self}, [](at::Tensor& to, const Views& in) { to.copy_(at::relu(in[0])); });
    return out;
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset)
{
    return at::cpu::as_strided_symint(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size)); }

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride)
{
    return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format)
{
    return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride)
{
    return at::cpu::set_(self, source, offset, size, stride);
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) { return at::native::set_(self, source); }

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) { return at::native::set_tensor_(self, source); }

void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_from_and_resize);
    m.impl("_local_scalar_dense", local_scalar);
    m.impl("fill_.Scalar", fill);
    m.impl("zero_", zero);
    m.impl("add.Tensor", add);
    m.impl("mm", mm);
    m.impl("addmm", addmm);
    m.impl("relu", relu);
    m.impl("as_strided", as_strided);
    m.impl("view", view);
    m.impl("_reshape_alias", reshape_alias);
    m.impl("resize_", resize);
    m.impl("set_.source_Storage_storage_offset", set_storage);
    m.impl("set_.source_Storage", set_whole_storage);
    m.impl("set_.source_Tensor", set_tensor);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>()); }

c10::DeviceIndex known(int index)
{
    TORCH_CHECK(index >= 0 && index < CARDS, "there is no card ", index);
    return static_cast<c10::DeviceIndex>(index);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    namespace py = pybind11;
    m.attr("CARDS") = int(CARDS);
    m.def("cost", [](int64_t ns, int index) { card(known(index)).cost_ns = ns; }, py::arg("ns"), py::arg("index") = 0);
    m.def("tick", [](bool on) { for (int i = 0; i < CARDS; i++) card(i).ticks = on; }, "A clock of the card's own.");
    m.def("clock_ns", [](int index) { return card(known(index)).now(); }, py::arg("index") = 0);
    m.def("hold", [](bool on, int index) { card(known(index)).hold(on); }, py::arg("on") = true, py::arg("index") = 0);
    m.def("pending", [](int index) { return card(known(index)).pending(); }, py::arg("index") = 0);
    m.def("waits", [](int index) { return card(known(index)).waits.load(); }, py::arg("index") = 0);
    m.def("fail_next", [](int index) { card(known(index)).fails = true; }, py::arg("index") = 0);
    m.def("allocated", [](int index) { return card(known(index)).allocated.load(); }, py::arg("index") = 0);
    m.def("capture", [](bool on) { capturing = on; });
    m.def("keep_time", [](bool on) { keeps_time = on; });
    m.def("tell_memory", [](bool on) { tells_memory = on; });
    m.def("end", [] { for (int i = 0; i < CARDS; i++) card(i).end(); }, py::call_guard<py::gil_scoped_release>());
    m.def("get_device", [] { return int(current); });
    m.def("set_device", [](int index) { current = known(index); });
    m.def("synchronize", [](int index) { card(index < 0 ? current : known(index)).wait(); }, py::arg("index") = -1,
          py::call_guard<py::gil_scoped_release>());
}
