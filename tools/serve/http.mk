# SPDX-License-Identifier: Apache-2.0
#
# The front of pawl serve: connections, endpoints, queues, the repository.

serve-http-y := cmd.o conn.o infer.o json.o log.o port.o repo.o route.o sched.o server.o slots.o stats.o
ifdef CONFIG_SERVE
serve-http-objs := $(addprefix tools/serve/,$(serve-http-y))
serve-http-ldlibs := $(shell $(PKG_CONFIG) --libs inih jansson) -lhttp_parser
$(serve-http-objs): ccflags := $(shell $(PKG_CONFIG) --cflags inih jansson)
targets += $(serve-http-objs)
serve-units := $(addprefix $(srctree)/tools/serve/,pawl-serve.service pawl-serve.socket)
tools/pawl/pawl: $(serve-http-objs) $(serve-model-objs)
tools/pawl/pawl: ldlibs += $(serve-http-ldlibs) $(serve-ldlibs)
endif
