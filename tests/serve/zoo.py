# SPDX-License-Identifier: Apache-2.0
"""zoo.py NAME FOLDER: a network of MXNet's model zoo with random weights, or one operator,
saved as MXNet saves it, with an input and MXNet's answer.  For test_models.py; it needs mxnet
1.9.1."""
import sys

import mxnet as mx
import numpy as np
from mxnet.gluon.model_zoo import vision

SIZES = {"inceptionv3": 299}
S = mx.sym

# one operator each; x is the input
OPERATORS = {
    "flat_fc": lambda x: S.FullyConnected(x, num_hidden=7, name="f"),
    "fc_rows": lambda x: S.FullyConnected(S.Convolution(x, kernel=(1, 1), num_filter=3,
                                                        name="c"),
                                          num_hidden=5, flatten=False, no_bias=True, name="f"),
    "softmax_output": lambda x: S.SoftmaxOutput(S.FullyConnected(x, num_hidden=5, name="f"),
                                                name="softmax"),
    "softmax_rows": lambda x: S.SoftmaxOutput(conv(x), preserve_shape=True, name="softmax"),
    "softmax_axis": lambda x: S.softmax(conv(x), axis=1),
    "log_softmax": lambda x: S.log_softmax(conv(x)),
    "deconv": lambda x: S.Deconvolution(conv(x), kernel=(3, 3), stride=(2, 2), pad=(1, 1),
                                        adj=(1, 1), num_filter=4, num_group=2, name="d"),
    "deconv_bias": lambda x: S.Deconvolution(conv(x), kernel=(2, 2), stride=(2, 2),
                                             num_filter=3,
                                             no_bias=False, name="d"),
    "conv": lambda x: S.Convolution(x, kernel=(3, 2), stride=(2, 1), dilate=(1, 2), pad=(1, 0),
                                    num_filter=6, num_group=3, name="c"),
    "pool_full": lambda x: S.Pooling(conv(x), kernel=(3, 3), stride=(2, 2), pool_type="max",
                                     pooling_convention="full"),
    "avg_full": lambda x: S.Pooling(conv(x), kernel=(3, 3), stride=(2, 2), pad=(1, 1),
                                    pool_type="avg", pooling_convention="full"),
    "avg_inside": lambda x: S.Pooling(conv(x), kernel=(3, 3), stride=(2, 2), pad=(1, 1),
                                      pool_type="avg", count_include_pad=False),
    "global_max": lambda x: S.Pooling(conv(x), global_pool=True, kernel=(1, 1),
                                      pool_type="max"),
    "batch_norm": lambda x: S.BatchNorm(S.relu(conv(x)), name="bn"),
    "batch_norm_gamma": lambda x: S.BatchNorm(conv(x), fix_gamma=False, eps=1e-2, name="bn"),
    "leaky": lambda x: S.LeakyReLU(conv(x), act_type="leaky", slope=0.1),
    "elu": lambda x: S.LeakyReLU(conv(x), act_type="elu", slope=0.4),
    "scalars": lambda x: 3 / (2.5 - (conv(x) * 0.25 + 1) / 3) - 0.5,
    "reshape": lambda x: S.Reshape(conv(x), shape=(0, 2, -1)),
    "transpose": lambda x: S.transpose(conv(x), axes=(0, 2, 3, 1)),
    "mean": lambda x: S.mean(conv(x), axis=(2, 3)),
    "max": lambda x: S.max(conv(x), axis=1, keepdims=True),
    "sum": lambda x: S.sum(conv(x), axis=-1),
    "lrn": lambda x: S.LRN(conv(x), nsize=3, alpha=0.2, knorm=1.5, beta=0.6),
    "broadcast": lambda x: S.broadcast_add(conv(x), S.mean(conv(x), axis=1, keepdims=True)),
    "elemwise": lambda x: S.add_n(conv(x), -S.abs(conv(x)),
                                  S.exp(conv(x)) * S.sigmoid(conv(x))),
    "softmax_act": lambda x: S.SoftmaxActivation(conv(x)),
    "softmax_channel": lambda x: S.SoftmaxActivation(conv(x), mode="channel"),
    "softmax_act3": lambda x: S.SoftmaxActivation(S.Reshape(conv(x), shape=(0, 4, -1))),
    "softmax_output4": lambda x: S.SoftmaxOutput(conv(x), name="softmax"),
    "softmax_output3": lambda x: S.SoftmaxOutput(S.Reshape(conv(x), shape=(0, 4, -1)),
                                                 name="softmax"),
    "mean_of_all": lambda x: S.mean(conv(x)),
    "max_of_axes": lambda x: S.max(conv(x), axis=(0, 1, 2, 3)),
    "sum_kept": lambda x: S.sum(conv(x), keepdims=True),
    "clip_exchanged": lambda x: S.clip(conv(x), 0.3, -0.2),
    # windows that lie outside
    "pool_outside": lambda x: 1e-38 * S.Pooling(conv(x), kernel=(2, 2), stride=(3, 3),
                                                pool_type="max", pooling_convention="full"),
    "scalars_too": lambda x: S.maximum(conv(x), 0.1) + S.minimum(conv(x), 0.2) + 2 ** conv(x),
    "expand": lambda x: S.expand_dims(S.Flatten(conv(x)), axis=1),
    "embedding": lambda x: S.Embedding(S.abs(x) * 4 - 0.5, input_dim=3, output_dim=4, name="e"),
    "layer_norm": lambda x: S.LayerNorm(conv(x), name="n"),
    "instance_norm": lambda x: S.InstanceNorm(conv(x), name="n"),
    "group_norm": lambda x: S.GroupNorm(conv(x), num_groups=2, name="n"),
    "argmax": lambda x: S.argmax(conv(x), axis=1) + S.argmin(conv(x), axis=1),
    "up_sampling": lambda x: S.UpSampling(conv(x), scale=2, sample_type="nearest"),
    "pad": lambda x: S.Concat(*[S.Pad(conv(x), mode=m, pad_width=(0, 0, 0, 0, 1, 2, 3, 1),
                                      constant_value=0.5) for m in ("reflect", "edge", "constant")]),
    "slice_channel": lambda x: pair(S.SliceChannel(conv(x), num_outputs=2)),
    "slice_channel_squeezed": lambda x: pair(S.SliceChannel(
        S.Convolution(x, kernel=(1, 1), num_filter=2, name="c"), num_outputs=2, squeeze_axis=True)),
    "slice_axis": lambda x: S.slice_axis(conv(x), axis=-1, begin=2, end=None),
    "swap_axis": lambda x: S.SwapAxis(conv(x), dim1=1, dim2=3),
    "adaptive": lambda x: S.contrib.AdaptiveAvgPooling2D(conv(x), output_size=(4, 5)),
    "batch_dot": lambda x: S.batch_dot(rows(x), rows(x), transpose_b=True),
    "batch_dot_turned": lambda x: S.batch_dot(rows(x), rows(x), transpose_a=True),
    "prelu": lambda x: S.LeakyReLU(conv(x), act_type="prelu", name="p"),
    "stack": lambda x: S.squeeze(S.stack(conv(x), S.rsqrt(S.square(conv(x)) + 1), axis=2).slice_axis(
        axis=2, begin=0, end=1), axis=2),
    "lstm": lambda x: S.RNN(steps(x), S.var("p"), S.var("s"), S.var("c"), state_size=5, num_layers=2,
                            bidirectional=True, mode="lstm", name="r"),
    "gru": lambda x: S.RNN(steps(x), S.var("p"), S.var("s"), state_size=5, num_layers=2,
                           mode="gru", name="r"),
    "activations": lambda x: S.Concat(*[S.Activation(conv(x), act_type=a) for a in (
        "relu", "sigmoid", "tanh", "softrelu", "softsign")], dim=1),
}
CONVS = [0]


def conv(x):
    CONVS[0] += 1
    return S.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=4, name=f"conv{CONVS[0]}")


def pair(x):
    return x[0] - 2 * x[1]


def rows(x):
    return S.Reshape(conv(x), shape=(0, 4, -1))


def steps(x):
    return S.transpose(rows(x), axes=(1, 0, 2))


def main(name, folder):
    mx.random.seed(1)
    rng = np.random.RandomState(1)
    prefix = folder + "/model"
    if name in OPERATORS:
        x = mx.nd.array(rng.uniform(-1, 1, (2, 3, 9, 12)))
        sym = OPERATORS[name](S.var("data", shape=(0, 3, 9, 12)))
        shapes, _, aux_shapes = sym.infer_shape(data=x.shape)
        args = {n: mx.nd.array(rng.uniform(-1, 1, s))
                for n, s in zip(sym.list_arguments(), shapes)}
        aux = {n: mx.nd.array(rng.uniform(0.5, 1.5, s))
               for n, s in zip(sym.list_auxiliary_states(), aux_shapes)}
        args["data"] = x
        y = sym.bind(mx.cpu(), args, aux_states=aux).forward(is_train=False)[0]
        for n in ("data", "softmax_label"):
            args.pop(n, None)
        mx.model.save_checkpoint(prefix, 0, sym, args, aux)
    else:
        size = SIZES.get(name, 224)
        x = mx.nd.array(rng.uniform(-1, 1, (2, 3, size, size)))
        net = vision.get_model(name)
        net.initialize(mx.init.Xavier(magnitude=2.0))
        net.hybridize()
        with mx.autograd.train_mode():
            net(x)      # some statistics for the batch normalization
        y = net(x)
        net.export(prefix)
    x.asnumpy().astype(np.float32).tofile(folder + "/x.f32")
    y.asnumpy().astype(np.float32).tofile(folder + "/y.f32")
    with open(folder + "/shapes", "w", encoding="ascii") as f:
        print(*x.shape, file=f)
        print(*y.shape, file=f)


if len(sys.argv) == 1:
    print(*OPERATORS)
else:
    main(sys.argv[1], sys.argv[2])
