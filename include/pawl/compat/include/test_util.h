/* SPDX-License-Identifier: Apache-2.0 */
/*
 * include/test_util.h, for tests of MXNet's engine that include it: the headers that they
 * expect from it.  It needs GoogleTest.
 */
#ifndef PAWL_COMPAT_INCLUDE_TEST_UTIL_H
#define PAWL_COMPAT_INCLUDE_TEST_UTIL_H

#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>
#include <pawl/compat/mxnet/ndarray.h>
#include <pawl/compat/mxnet/storage.h>

#endif
