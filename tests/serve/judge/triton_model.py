# SPDX-License-Identifier: Apache-2.0
"""A model of Triton's Python backend: model.onnx beside this file, in onnxruntime with one
thread; requests that Triton passes at once are one run.  The identity is a copy in numpy."""
import json
import os
import sys


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config["parameters"].items()}
        sys.path.insert(0, parameters["site"])
        global np, pb
        import numpy as np
        import triton_python_backend_utils as pb
        self.outputs = [o["name"] for o in config["output"]]
        self.inputs = [i["name"] for i in config["input"]]
        self.batched = config["max_batch_size"] > 0
        self.session = None
        if parameters["identity"] == "1":
            return
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        folder = os.path.join(args["model_repository"], args["model_version"])
        self.session = ort.InferenceSession(os.path.join(folder, "model.onnx"), options,
                                            providers=["CPUExecutionProvider"])

    def run(self, arrays):
        if self.session:
            return self.session.run(self.outputs, arrays)
        return [arrays[n] for n in self.inputs]

    def answer(self, arrays):
        return pb.InferenceResponse([pb.Tensor(n, a) for n, a in zip(self.outputs, arrays)])

    def execute(self, requests):
        arrays = [{n: pb.get_input_tensor_by_name(r, n).as_numpy() for n in self.inputs}
                  for r in requests]
        if len(requests) == 1 or not self.batched:
            return [self.answer(self.run(a)) for a in arrays]
        together = self.run({n: np.concatenate([a[n] for a in arrays]) for n in self.inputs})
        answers, row = [], 0
        for a in arrays:
            end = row + len(a[self.inputs[0]])
            answers.append(self.answer([o[row:end] for o in together]))
            row = end
        return answers
