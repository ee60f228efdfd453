# SPDX-License-Identifier: Apache-2.0
"""The version, that of the library whose release this package belongs to."""

__version__ = "0.1.0"
