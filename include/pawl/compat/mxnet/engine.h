/* SPDX-License-Identifier: Apache-2.0 */
/* mxnet/engine.h, for code that uses MXNet's header: includes <pawl/mx_engine.hpp>. */
#ifndef PAWL_COMPAT_MXNET_ENGINE_H
#define PAWL_COMPAT_MXNET_ENGINE_H

#include <pawl/compat/dmlc/base.h>
#include <pawl/compat/dmlc/logging.h>
#include <pawl/compat/dmlc/thread_local.h>
#include <pawl/mx_engine.hpp>

#endif
