// SPDX-License-Identifier: Apache-2.0
/*
 * A package that pushes into MXNet's engine through the C interface, as Horovod does: arrays by
 * their vars, a static context and property, an operation that another thread completes later,
 * with or without an error, a deleter for the parameter, synchronous copies, and an exception of
 * its own.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <mxnet/base.h>
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <mxnet/ndarray.h>

namespace {

using mxnet::NDArray;
typedef mxnet::engine::CallbackOnComplete Done;

const auto context = mxnet::Context::CPU();
const auto property = mxnet::FnProperty::kCPUPrioritized;

// The thread that does the operations, one after the other, in the order of their starts.
class Background {
 public:
	Background() : thread_([this] { Loop(); }) {}
	~Background()
	{
		Post(nullptr);
		thread_.join();
	}
	void Post(std::function<void()> work)
	{
		std::lock_guard<std::mutex> lock(mutex_);
		queue_.push_back(std::move(work));
		wake_.notify_one();
	}

 private:
	void Loop()
	{
		for (;;) {
			std::unique_lock<std::mutex> lock(mutex_);
			wake_.wait(lock, [this] { return !queue_.empty(); });
			std::function<void()> work = std::move(queue_.front());
			queue_.pop_front();
			lock.unlock();
			if (!work)
				return;
			work();
		}
	}
	std::mutex mutex_;
	std::condition_variable wake_;
	std::deque<std::function<void()>> queue_;
	std::thread thread_;
};

std::unique_ptr<Background> background;
std::atomic<int> deleted{0};

struct Param {
	std::vector<NDArray> inputs, outputs;
	std::string error;
};

void Delete(void *param)
{
	delete static_cast<Param *>(param);
	deleted++;
}

// Every output becomes the mean of the inputs.
void Average(Param *p)
{
	for (size_t k = 0; k < p->outputs.size(); k++) {
		float *out = p->outputs[k].data().dptr<float>();
		for (size_t i = 0; i < p->outputs[k].shape().Size(); i++) {
			float sum = 0;
			for (auto &in : p->inputs)
				sum += in.data().dptr<float>()[i];
			out[i] = sum / static_cast<float>(p->inputs.size());
		}
	}
}

void Start(void *, void *on_complete, void *param)
{
	const Done done = *static_cast<Done *>(on_complete);
	Param *p = static_cast<Param *>(param);

	background->Post([done, p] {
		if (!p->error.empty()) {
			dmlc::Error error(p->error);
			done(&error);
			return;
		}
		Average(p);
		done();
	});
}

void Copy(void *, void *param)
{
	Param *p = static_cast<Param *>(param);

	for (size_t k = 0; k < p->outputs.size(); k++)
		std::copy_n(p->inputs[k].data().dptr<float>(), p->inputs[k].shape().Size(),
			    p->outputs[k].data().dptr<float>());
}

std::atomic<bool> failing{false};

void Fail(void *, void *)
{
	failing = true;
	throw std::out_of_range("beyond the end");
}

Param *Make(NDArrayHandle *in, int nin, NDArrayHandle *out, int nout, const char *error,
	    std::vector<void *> *reads, std::vector<void *> *writes)
{
	Param *p = new Param;

	for (int i = 0; i < nout; i++) {
		p->outputs.push_back(*static_cast<NDArray *>(out[i]));
		writes->push_back(p->outputs.back().var());
	}
	for (int i = 0; i < nin; i++) {
		p->inputs.push_back(*static_cast<NDArray *>(in[i]));
		// in place: the write is enough
		if (std::find(writes->begin(), writes->end(), p->inputs.back().var()) == writes->end())
			reads->push_back(p->inputs.back().var());
	}
	p->error = error ? error : "";
	return p;
}

}  // namespace

extern "C" void foreign_start() { background.reset(new Background); }
extern "C" void foreign_stop() { background.reset(); }
extern "C" int foreign_deleted() { return deleted; }

extern "C" int foreign_average(NDArrayHandle *in, int nin, NDArrayHandle *out, int nout,
			       const char *error, int priority)
{
	std::vector<void *> reads, writes;
	Param *p = Make(in, nin, out, nout, error, &reads, &writes);

	return MXEnginePushAsync(Start, p, Delete, &context, reads.data(),
				 static_cast<int>(reads.size()), writes.data(),
				 static_cast<int>(writes.size()), &property, priority,
				 "foreign_average");
}

extern "C" int foreign_copy(NDArrayHandle *in, NDArrayHandle *out, int n)
{
	std::vector<void *> reads, writes;
	Param *p = Make(in, n, out, n, nullptr, &reads, &writes);

	return MXEnginePushSync(Copy, p, Delete, &context, reads.data(),
				static_cast<int>(reads.size()), writes.data(),
				static_cast<int>(writes.size()), &property, 0, "foreign_copy");
}

// Engine::Throw(), or WaitForAll(), throws what the operation did.  1: it has; 2: another
// exception; 0: none.
extern "C" int foreign_throws(NDArrayHandle nd, int all)
{
	const mxnet::Engine::VarHandle var = static_cast<NDArray *>(nd)->var();
	void *write = var;

	failing = false;
	if (MXEnginePushSync(Fail, nullptr, nullptr, &context, nullptr, 0, &write, 1, &property, 0,
			     "foreign_throws"))
		return 3;
	for (int i = 0; i < 600; i++) {
		const bool failed = failing;

		std::this_thread::sleep_for(std::chrono::milliseconds(50));
		try {
			if (failed && all)
				mxnet::Engine::Get()->WaitForAll();
			else if (failed)
				mxnet::Engine::Get()->Throw(var);
		} catch (const std::out_of_range &e) {
			return std::string(e.what()) == "beyond the end" ? 1 : 2;
		} catch (const std::exception &) {
			return 2;
		}
	}
	return 0;
}

// What the engine says of itself and of an array.
extern "C" int foreign_bulk_size() { return mxnet::Engine::Get()->bulk_size(); }
extern "C" int foreign_version(NDArrayHandle nd)
{
	return static_cast<int>(static_cast<NDArray *>(nd)->version());
}

namespace {

const auto normal = mxnet::FnProperty::kNormal;
std::atomic<bool> open_gate{false}, at_gate{false};
std::vector<int> order;		// of the only worker

void Gate(void *, void *)
{
	at_gate = true;
	while (!open_gate)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Note(void *, void *param) { order.push_back(static_cast<int>(reinterpret_cast<intptr_t>(param))); }

void NoteAsync(void *, void *on_complete, void *param)
{
	const Done done = *static_cast<Done *>(on_complete);

	Note(nullptr, param);
	done();
}

}  // namespace

// The order in which the only worker for urgent operations runs those that wait for it, as a number.
// Every second one is asynchronous.
extern "C" int foreign_order()
{
	static const int priorities[] = { 1, 5, -3, 9, 4 };
	int said = 0;

	order.clear();
	open_gate = at_gate = false;
	if (MXEnginePushSync(Gate, nullptr, nullptr, &context, nullptr, 0, nullptr, 0, &property, 0,
			     "foreign_gate"))
		return -1;
	while (!at_gate)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	for (intptr_t i = 0; i < 5; i++) {
		void *param = reinterpret_cast<void *>(i + 1);
		const int rc = i % 2 ? MXEnginePushAsync(NoteAsync, param, nullptr, &context, nullptr, 0,
							 nullptr, 0, &property, priorities[i], "note") :
			MXEnginePushSync(Note, param, nullptr, &context, nullptr, 0, nullptr, 0,
					 &property, priorities[i], "note");

		if (rc)
			return -1;
	}
	open_gate = true;
	mxnet::Engine::Get()->WaitForAll();
	for (int i : order)
		said = 10 * said + i;
	return said;
}

namespace {

Done held[2];
std::atomic<int> nheld{0};

void Hold(void *, void *on_complete, void *param)
{
	held[reinterpret_cast<intptr_t>(param)] = *static_cast<Done *>(on_complete);
	nheld++;
}

}  // namespace

// The last call.  At exit an array is freed with all that uses it: the call that frees it returns
// when no operation of the process is left.  1: so it did; 2: MXNet's own engine, which waits later.
extern "C" int foreign_exit(NDArrayHandle first, NDArrayHandle second)
{
	NDArrayHandle nd[2] = { first, second };
	std::atomic<bool> completed{false};

	if (!dlsym(RTLD_DEFAULT, "pawl_mxnet_engine"))
		return 2;
	for (intptr_t i = 0; i < 2; i++) {
		void *write = static_cast<NDArray *>(nd[i])->var();

		if (MXEnginePushAsync(Hold, reinterpret_cast<void *>(i), nullptr, &context, nullptr, 0,
				      &write, 1, &normal, 0, "foreign_hold"))
			return 0;
	}
	while (nheld < 2)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	mxnet::Engine::Get()->NotifyShutdown();	// MXNotifyShutdown() also waits
	std::thread later([&] {
		std::this_thread::sleep_for(std::chrono::milliseconds(100));
		held[0]();
		std::this_thread::sleep_for(std::chrono::milliseconds(100));
		completed = true;
		held[1]();
	});
	MXNDArrayFree(first);
	const bool all = completed;

	later.join();
	return all;
}
