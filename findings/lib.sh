# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder.
set -eu

# Install the pinned packages of PyPI into a temporary virtualenv, whose Python is $python.
packages() {
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	python3 -m venv "$tmp/venv"
	"$tmp/venv/bin/pip" install -q --disable-pip-version-check "$@"
	python=$tmp/venv/bin/python
}

# Run the program on standard input.  It can call seen(what, value, expected, noted): it prints
# all three, and fails unless the value is the one noted here.  model() makes a model of one node.
program() {
	cat >"$tmp/finding.py"
	cat >"$tmp/common.py" <<-'PY'
		import sys, warnings
		import numpy as np

		warnings.simplefilter("ignore")

		def seen(what, value, expected, noted):
		    value = np.asarray(value).tolist()
		    print(f"{what}\n    expected {expected}\n    seen     {value}")
		    if str(value) != str(noted):
		        sys.exit(f"changed: noted here was {noted}")

		def model(op, feed, outputs, opset, **attributes):
		    """A model of one operator.  feed: name -> array, or None for an input left out."""
		    from onnx import TensorProto, helper
		    names = [n if a is not None else "" for n, a in feed.items()]
		    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) if a is not None else 0
		             for a in feed.values()]
		    node = helper.make_node(op, names, [n for n, _ in outputs], **attributes)
		    graph = helper.make_graph(
		        [node], op,
		        [helper.make_tensor_value_info(n, k, feed[n].shape)
		         for n, k in zip(names, kinds) if n],
		        [helper.make_tensor_value_info(n, k, None) for n, k in outputs])
		    return helper.make_model(graph, ir_version=10,
		                             opset_imports=[helper.make_opsetid("", opset)])

		def feed_of(feed):
		    return {n: a for n, a in feed.items() if a is not None}

		def ort(m, feed):
		    import onnxruntime
		    onnxruntime.set_default_logger_severity(4)
		    s = onnxruntime.InferenceSession(m.SerializeToString(),
		                                     providers=["CPUExecutionProvider"])
		    return s.run(None, feed_of(feed))

		def reference(m, feed):
		    from onnx.reference import ReferenceEvaluator
		    return ReferenceEvaluator(m).run(None, feed_of(feed))
	PY
	PYTHONPATH=$tmp "$python" "$tmp/finding.py"
}
