/* SPDX-License-Identifier: Apache-2.0 */
/*
 * src/engine/engine_impl.h, for tests of MXNet's engine that include it.  <pawl/mx_engine.hpp>
 * has Var, Opr and the functions that create an engine of each kind.
 */
#ifndef PAWL_COMPAT_SRC_ENGINE_ENGINE_IMPL_H
#define PAWL_COMPAT_SRC_ENGINE_ENGINE_IMPL_H

#include <pawl/compat/mxnet/engine.h>

#ifndef ENGINE_DEBUG
#define ENGINE_DEBUG 0
#endif

namespace mxnet {
namespace engine {

static constexpr std::size_t kMaxNumGPUs = 16;

}
}

#endif
