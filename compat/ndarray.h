/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COMPAT_NDARRAY_H
#define COMPAT_NDARRAY_H

#define MX_NDIM		32

#endif
