// SPDX-License-Identifier: Apache-2.0
/*
 * The reader of image files (demo/images.c) with any bytes, as they are and with a
 * correct checksum, which no mutation would find.
 *
 * The reader either refuses with a negative errno and a message, or accepts; then every field
 * is in its range, every byte is readable, and the file without its last byte is refused.
 */
#include <errno.h>
#include "fuzz.h"
#include "../../demo/images.h"

const char fuzz_target[] = "images";
const uint8_t *fuzz_data;
size_t fuzz_size;
static unsigned long accepted, refused;

static int parse(const uint8_t *p, size_t n)
{
	struct image_set *set = NULL;
	char err[256] = "";
	uint32_t i, held = 0;
	uint64_t sum = 0;
	float *row;
	int rc;

	rc = images_parse(p, n, "x.img", &set, err, sizeof(err));
	if (rc) {
		if (rc > 0 || set || strncmp(err, "x.img: ", 7))
			fuzz_broken("refused with %d, \"%s\"", rc, err);
		refused++;
		return rc;
	}
	accepted++;
	if (!set->count || !set->size || set->size != set->height * set->width ||
	    !set->classes || set->held_out > set->count)
		fuzz_broken("accepted %u images of %u in %u classes", set->count, set->size,
			    set->classes);
	row = malloc(set->size * sizeof(*row));
	for (i = 0; i < set->count; i++) {
		if (set->label[i] >= set->classes || set->split[i] > 1)
			fuzz_broken("image %u has label %u and split %u", i, set->label[i], set->split[i]);
		held += set->split[i];
		images_input(set, i, row);
		for (uint32_t k = 0; k < set->size; k++) {
			if (!(row[k] >= 0 && row[k] <= 1))
				fuzz_broken("image %u has a pixel of %g", i, (double)row[k]);
			sum += set->pixel[(size_t)i * set->size + k];
		}
	}
	if (held != set->held_out || sum > (uint64_t)set->count * set->size * set->max_value)
		fuzz_broken("%u of %u are held out", held, set->held_out);
	free(row);
	images_free(set);
	return 0;
}

static uint32_t crc32(const uint8_t *p, size_t n)
{
	uint32_t crc = ~0u;

	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	uint32_t crc;

	fuzz_data = data;
	fuzz_size = size;
	parse(data, size);
	if (size < 36)
		return 0;
	copy = malloc(size);
	memcpy(copy, data, size);
	crc = crc32(copy, size - 4);
	for (int i = 0; i < 4; i++)
		copy[size - 4 + i] = (uint8_t)(crc >> 8 * i);
	if (!parse(copy, size) && !parse(copy, size - 1))
		fuzz_broken("a file is accepted with and without its last byte");
	free(copy);
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len, "accepted=%lu refused=%lu", accepted, refused);
}
