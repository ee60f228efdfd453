# SPDX-License-Identifier: Apache-2.0
"""Record what MXNet pushes for one piece of work: a recorded workload (tests/data).

pawl mxnet python record.py train|resnet18 FILE

The engine is warm: the same piece of work was done before. With nothing but `pawl mxnet` and
PAWL_RECORD=FILE the recording would begin with the program.
"""

import ctypes
import sys

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision

from common import digits, make


def training_step():
    """Forward, backward and update of the small convolutional network, a batch of 32."""
    x, y = digits()
    x, y = mx.nd.array(x[:32]), mx.nd.array(y[:32])
    net = make("conv")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def step():
        with autograd.record():
            err = loss(net(x), y)
        err.backward()
        trainer.step(32)
        return err.mean().asscalar()
    return step


def resnet18():
    """One image, imperative."""
    mx.random.seed(3)
    net = vision.resnet18_v1()
    net.initialize(mx.init.Xavier())
    x = mx.nd.random.uniform(shape=(1, 3, 224, 224))
    return lambda: net(x).asnumpy()


def main():
    pawl = ctypes.CDLL(None)
    work = {"train": training_step, "resnet18": resnet18}[sys.argv[1]]()
    for _ in range(2):
        work()
    mx.nd.waitall()
    if pawl.pawl_record_start(sys.argv[2].encode()):
        sys.exit("no recording: is this run by pawl mxnet?")
    work()
    mx.nd.waitall()
    if pawl.pawl_record_stop():
        sys.exit("the recording is not complete")


if __name__ == "__main__":
    main()
