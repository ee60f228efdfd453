// SPDX-License-Identifier: Apache-2.0
/*
 * grpc.reflection: the files that describe the services, for clients without them, such as
 * grpcurl.
 */

#include <string.h>

#include <generated/inference.pb-c.h>
#include "grpc.h"

struct file {
	const char *name;
	const unsigned char *data;
	size_t n;
	const char *const *names, *const *services;
};

#include <generated/services.h>

#define FILES (sizeof(files) / sizeof(files[0]))	/* each has one service at most */

/* The file of this name, or the one that defines it; else FILES. */
static size_t find(const char *file, const char *symbol)
{
	size_t i, k;

	for (i = 0; i < FILES; i++) {
		if (file && !strcmp(files[i].name, file))
			break;
		for (k = 0; symbol && files[i].names[k]; k++)
			if (!strcmp(files[i].names[k], symbol))
				return i;
	}
	return i;
}

static void services(Inference__ReflectionResponse *m, Inference__ReflectionServices *all,
		     Inference__ReflectionService *one, Inference__ReflectionService **at)
{
	size_t i, k;

	for (i = 0; i < FILES; i++)
		for (k = 0; files[i].services[k]; k++) {
			one[all->n_service] = (Inference__ReflectionService)
				INFERENCE__REFLECTION_SERVICE__INIT;
			one[all->n_service].name = (char *)(uintptr_t)files[i].services[k];
			at[all->n_service] = &one[all->n_service];
			all->n_service++;
		}
	all->service = at;
	m->message_response_case =
		INFERENCE__REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
	m->list_services_response = all;
}

void grpc_reflect(struct call *k, struct buf *body)
{
	Inference__ReflectionResponse m = INFERENCE__REFLECTION_RESPONSE__INIT;
	Inference__ReflectionServices all = INFERENCE__REFLECTION_SERVICES__INIT;
	Inference__ReflectionError error = INFERENCE__REFLECTION_ERROR__INIT;
	Inference__ReflectionFiles found = INFERENCE__REFLECTION_FILES__INIT;
	Inference__ReflectionService one[FILES], *at[FILES];
	Inference__ReflectionRequest *r;
	ProtobufCBinaryData data;
	size_t i = FILES;
	struct arena *a;

	r = grpc_unpack(k, body, &inference__reflection_request__descriptor, &a);
	if (!r)
		return;
	m.valid_host = r->host;
	m.original_request = (ProtobufCBinaryData){ body->n, (uint8_t *)body->p };
	switch (r->message_request_case) {
	case INFERENCE__REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
		services(&m, &all, one, at);
		break;
	case INFERENCE__REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
		i = find(r->file_by_filename, NULL);
		break;
	case INFERENCE__REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
		i = find(NULL, r->file_containing_symbol);
		break;
	default:
		break;
	}
	if (i < FILES) {
		/* a client reads the files that it imports by their names */
		data = (ProtobufCBinaryData){ files[i].n, (uint8_t *)(uintptr_t)files[i].data };
		found.n_file_descriptor_proto = 1;
		found.file_descriptor_proto = &data;
		m.message_response_case =
			INFERENCE__REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
		m.file_descriptor_response = &found;
	} else if (!m.message_response_case) {
		error.error_code = GRPC_NOT_FOUND;
		error.error_message = (char *)(uintptr_t)"the server does not describe this";
		m.message_response_case =
			INFERENCE__REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
		m.error_response = &error;
	}
	if (!call_send(k, &m.base))
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	arena_end(a);
}
