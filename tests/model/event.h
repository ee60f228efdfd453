/* SPDX-License-Identifier: Apache-2.0 */
/* The model's eventfd; there is one. */
#ifndef MODEL_EVENT_H
#define MODEL_EVENT_H

#include <stdbool.h>

bool model_event_readable(void);

#endif
