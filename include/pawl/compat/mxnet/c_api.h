/* SPDX-License-Identifier: Apache-2.0 */
/* mxnet/c_api.h, the engine part of it: includes <pawl/mx_c_api.h>. */
#ifndef PAWL_COMPAT_MXNET_C_API_H
#define PAWL_COMPAT_MXNET_C_API_H

#include <pawl/mx_c_api.h>

#endif
