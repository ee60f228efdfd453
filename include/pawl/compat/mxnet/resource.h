/* SPDX-License-Identifier: Apache-2.0 */
/* mxnet/resource.h, for code that uses MXNet's header: includes <pawl/mx_ndarray.hpp>. */
#ifndef PAWL_COMPAT_MXNET_RESOURCE_H
#define PAWL_COMPAT_MXNET_RESOURCE_H

#include <pawl/compat/mxnet/engine.h>
#include <pawl/mx_ndarray.hpp>

#endif
