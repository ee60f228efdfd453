# SPDX-License-Identifier: Apache-2.0
"""Train a network on the digits; print the loss of every epoch and a sum of all weights.

Equal output is equal to the last bit.
"""

import argparse

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from common import NETS, digits, make, show


def train(name, epochs, hybrid, batch=32, kvstore=None):
    x, y = digits()
    net = make(name, hybrid=hybrid)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.002},
                            kvstore=kvstore)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    n = len(x) // batch * batch
    order = np.random.RandomState(5)
    for epoch in range(epochs):
        at = order.permutation(len(x))[:n].reshape(-1, batch)
        total = mx.nd.zeros((1,))
        for rows in at:
            data, label = mx.nd.array(x[rows]), mx.nd.array(y[rows])
            with autograd.record():
                err = loss(net(data), label)
            err.backward()
            trainer.step(batch)
            total += err.sum()
        show("%s%s epoch %d loss" % (name, " hybrid" if hybrid else "", epoch),
             total.asscalar() / n)
    right = (net(mx.nd.array(x)).argmax(axis=1).asnumpy() == y).mean()
    weights = sum(float(np.abs(p.data().asnumpy().astype(np.float64)).sum())
                  for p in net.collect_params().values())
    show("%s%s weights" % (name, " hybrid" if hybrid else ""), weights)
    print("%s%s right %.2f %%" % (name, " hybrid" if hybrid else "", 100 * right), flush=True)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--kvstore")
    parser.add_argument("nets", nargs="*", default=sorted(NETS))
    opt = parser.parse_args()
    for name in opt.nets or sorted(NETS):
        for hybrid in (False, True):
            if train(name, opt.epochs, hybrid, kvstore=opt.kvstore) < 0.5:
                raise SystemExit("%s has learned nothing" % name)


if __name__ == "__main__":
    main()
