/* SPDX-License-Identifier: Apache-2.0 */
/* dmlc/base.h - BeginPtr(), the address of the first element, or NULL if there is none. */
#ifndef PAWL_COMPAT_DMLC_BASE_H
#define PAWL_COMPAT_DMLC_BASE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#ifndef DMLC_USE_CXX11
#define DMLC_USE_CXX11 1
#endif

namespace dmlc {

template <typename T>
inline T *BeginPtr(std::vector<T> &vec)
{
	return vec.empty() ? nullptr : &vec[0];
}

template <typename T>
inline const T *BeginPtr(const std::vector<T> &vec)
{
	return vec.empty() ? nullptr : &vec[0];
}

inline char *BeginPtr(std::string &str)
{
	return str.empty() ? nullptr : &str[0];
}

inline const char *BeginPtr(const std::string &str)
{
	return str.empty() ? nullptr : &str[0];
}

}

#endif
