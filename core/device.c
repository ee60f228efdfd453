// SPDX-License-Identifier: Apache-2.0
/*
 * The public calls of pawl/device.h.
 *
 * Ordering: CORE-D11 (an adopted stream's row, release) <-> CORE-D12; CORE-D15 (adoption
 * begins, acquire) <-> CORE-D16 (adoption ends, release).
 *
 * Progress: that of the driver.  One thread at a time may be in pawl_stream_adopt(); others
 * get -EAGAIN.
 */
#include <string.h>
#include <core/devices.h>
#include <core/push.h>
#include <core/sizes.h>

int pawl_device_count(int kind)
{
	const struct device_ops *ops = device_of_kind((u32)kind);
	int n, rc = devices_process_check("device_count");

	if (rc)
		return rc;
	if (!ops)
		return err(-ENOSYS, "device_count: this library is built without devices of kind %d",
			   kind);
	rc = ops->count(&n);
	return rc ? rc : n;
}
PAWL_EXPORT(pawl_device_count);

int pawl_device_info(struct pawl_device device, struct pawl_device_info *out)
{
	const struct device_ops *ops = device_of_kind(device.kind);
	int rc = devices_process_check("device_info");
	struct pawl_device_info d = { 0 };
	struct device_info i;

	if (!rc)
		rc = size_check_out("device_info: out", out, DEVICE_INFO_SIZE_0);
	if (rc)
		return rc;
	if (!ops)
		return err(-ENOSYS, "device_info: this library is built without devices of kind %u",
			   device.kind);
	rc = ops->info(device.id, &i);
	if (rc)
		return rc;
	memcpy(d.name, i.name, sizeof(d.name));
	d.memory = i.memory;
	d.memory_free = i.memory_free;
	d.major = i.major;
	d.minor = i.minor;
	d.units = i.units;
	d.driver = i.driver;
	d.runtime = i.runtime;
	size_copy_out(out, &d, sizeof(d));
	return 0;
}
PAWL_EXPORT(pawl_device_info);

/* On failure returns NULL, with the error in *rc. */
static struct device *mem_device(struct pawl_engine *e, struct pawl_device device,
				 const char *who, int *rc)
{
	struct thread *t = thread_get(e);
	struct dev_row *row = t ? row_get(e, device, who) : NULL;

	*rc = t ? -ENODEV : thread_last.code;
	return row ? row->d : NULL;
}

int pawl_device_alloc(struct pawl_engine *e, struct pawl_device device, size_t bytes,
		      void **out)
{
	int rc;
	struct device *d = mem_device(e, device, "device_alloc", &rc);

	if (!d)
		return rc;
	if (!out)
		return err(-EINVAL, "device_alloc: out is NULL");
	return device_check(d, d->ops->alloc(d->dev, bytes, out));
}
PAWL_EXPORT(pawl_device_alloc);

int pawl_device_free(struct pawl_engine *e, struct pawl_device device, void *p)
{
	int rc;
	struct device *d = mem_device(e, device, "device_free", &rc);

	return !d ? rc : device_check(d, d->ops->release(d->dev, p));
}
PAWL_EXPORT(pawl_device_free);

int pawl_host_alloc(struct pawl_engine *e, struct pawl_device device, size_t bytes, void **out)
{
	int rc;
	struct device *d = mem_device(e, device, "host_alloc", &rc);

	if (!d)
		return rc;
	if (!out)
		return err(-EINVAL, "host_alloc: out is NULL");
	return device_check(d, d->ops->host_alloc(d->dev, bytes, out));
}
PAWL_EXPORT(pawl_host_alloc);

int pawl_host_free(struct pawl_engine *e, struct pawl_device device, void *p)
{
	int rc;
	struct device *d = mem_device(e, device, "host_free", &rc);

	return !d ? rc : device_check(d, d->ops->host_free(d->dev, p));
}
PAWL_EXPORT(pawl_host_free);

static struct device host = { .ops = &device_cpu, .name = "cpu" };

static struct device *run_device(struct pawl_run *run)
{
	struct device *d = device_of_run(run);

	return d ? d : &host;
}

int pawl_run_copy(struct pawl_run *run, void *to, const void *from, size_t bytes, int dir)
{
	struct device *d = run_device(run);

	if (dir < PAWL_HOST_TO_DEVICE || dir > PAWL_HOST_TO_HOST)
		return err(-EINVAL, "run_copy: dir is %d", dir);
	return device_check(d, d->ops->copy(d->dev, run->stream, to, from, bytes,
					    (enum device_copy)dir));
}
PAWL_EXPORT(pawl_run_copy);

int pawl_run_set(struct pawl_run *run, void *to, int byte, size_t bytes)
{
	struct device *d = run_device(run);

	return device_check(d, d->ops->set(d->dev, run->stream, to, byte, bytes));
}
PAWL_EXPORT(pawl_run_set);

int pawl_run_call(struct pawl_run *run, void (*fn)(void *arg), void *arg)
{
	struct device *d = run_device(run);

	if (!fn)
		return err(-EINVAL, "run_call: fn is NULL");
	return device_check(d, d->ops->host_call(d->dev, run->stream, fn, arg));
}
PAWL_EXPORT(pawl_run_call);

int pawl_run_alloc(struct pawl_run *run, size_t bytes, void **out)
{
	struct device *d = run_device(run);

	if (!out)
		return err(-EINVAL, "run_alloc: out is NULL");
	return device_check(d, d->ops->alloc_async(d->dev, run->stream, bytes, out));
}
PAWL_EXPORT(pawl_run_alloc);

int pawl_run_free(struct pawl_run *run, void *p)
{
	struct device *d = run_device(run);

	return device_check(d, d->ops->free_async(d->dev, run->stream, p));
}
PAWL_EXPORT(pawl_run_free);

int pawl_var_delete_on(struct pawl_engine *e, pawl_var_t v, struct pawl_device device,
		       pawl_fn fn, void *arg)
{
	struct thread *t = thread_get(e);

	if (unlikely(!t))
		return thread_last.code;
	if (!row_get(e, device, "var_delete_on"))
		return -ENODEV;
	return var_delete(t, v, device, fn, arg);
}
PAWL_EXPORT(pawl_var_delete_on);

int pawl_stream_adopt(struct pawl_engine *e, struct pawl_device device, void *stream,
		      struct pawl_device *out)
{
	struct thread *t = thread_get(e);
	struct dev_row *base, *row;
	struct devices *dv;
	u32 none = 0, i;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!out || !stream)
		return err(-EINVAL, "stream_adopt: %s is NULL", out ? "stream" : "out");
	base = row_get(e, device, "stream_adopt");
	if (!base)
		return -ENODEV;
	dv = e->devices;
	/* CORE-D15 <-> CORE-D16: the rows that earlier calls added. */
	if (!cas_acquire_relaxed(&dv->adopting, &none, 1))
		return err(-EAGAIN, "stream_adopt: another thread is adopting a stream");
	i = dv->nrows;
	row = &dv->rows[i];
	rc = i < MAX_ROWS && dv->nlanes < dv->max_lanes ? 0 :
	     err(-ENOMEM, "stream_adopt: the engine has %u adopted streams already", MAX_ADOPTED);
	if (!rc)
		rc = device_lane_add(dv, base->d, &row->class[CLASS_COMPUTE], stream, 0, false);
	if (!rc) {
		row->name.kind = device.kind;
		row->name.id = (u16)(ADOPTED_ID + i);
		row->d = base->d;
		row->adopted = true;
		memcpy(&e->routes[(DEV_FIRST + i) * 8],
		       &e->routes[(DEV_FIRST + (base - dv->rows)) * 8], 8 * sizeof(*e->routes));
		store_release(&dv->nrows, i + 1);	/* CORE-D11 <-> CORE-D12 */
		*out = row->name;
	}
	store_release(&dv->adopting, 0);	/* CORE-D16 <-> CORE-D15 */
	return rc;
}
PAWL_EXPORT(pawl_stream_adopt);
