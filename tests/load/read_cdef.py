# SPDX-License-Identifier: Apache-2.0
"""read_cdef.py LIBPAWL.SO PAWL.CDEF: Python's cffi reads the declarations and runs ops."""
import sys

from cffi import FFI

ffi = FFI()
with open(sys.argv[2], encoding="utf-8") as file:
    ffi.cdef(file.read())
pawl = ffi.dlopen(sys.argv[1])


def check(err):
    """A call of pawl's that must succeed."""
    if err:
        sys.exit(f"cffi: {err}, {ffi.string(pawl.pawl_error_text()).decode()}")


ran = []


@ffi.callback("pawl_fn")
def body(run, arg):
    """The body of the op; it may run on a thread of the engine's."""
    ran.append(run.device.kind == pawl.PAWL_CPU and not arg)
    return 0


config = ffi.new("struct pawl_config *")
pawl.pawl_config_init_size(config, ffi.sizeof("struct pawl_config"))
config.workers = 1
engine = ffi.new("struct pawl_engine **")
check(pawl.pawl_engine_create(config, engine))
var = ffi.new("pawl_var_t *")
check(pawl.pawl_var_create(engine[0], var))
op = ffi.new("struct pawl_op *")
op.size = ffi.sizeof("struct pawl_op")
op.fn = body
op.writes = var
op.nwrites = 1
for _ in range(100):
    check(pawl.pawl_push(engine[0], op))
check(pawl.pawl_wait_all(engine[0], -1, ffi.NULL))
check(pawl.pawl_engine_destroy(engine[0]))
if ran != [True] * 100:
    sys.exit(f"cffi: {len(ran)} of 100 ops ran")
