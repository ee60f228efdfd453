/* SPDX-License-Identifier: Apache-2.0 */
/* mxnet/ndarray.h, for code that uses MXNet's header: includes <pawl/mx_ndarray.hpp>. */
#ifndef PAWL_COMPAT_MXNET_NDARRAY_H
#define PAWL_COMPAT_MXNET_NDARRAY_H

#include <pawl/compat/mxnet/engine.h>
#include <pawl/mx_ndarray.hpp>

#endif
