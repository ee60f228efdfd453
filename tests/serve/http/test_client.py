# SPDX-License-Identifier: Apache-2.0
"""Triton's own client for HTTP."""
import pytest

numpy = pytest.importorskip("numpy")
http = pytest.importorskip("tritonclient.http")


@pytest.fixture
def client(server):
    server.model("m", inputs=2, add=1)
    server.start()
    one = http.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4)
    yield one
    one.close()


def tensors(binary, rows=2):
    data = [numpy.arange(rows * 4, dtype=numpy.float32).reshape(rows, 4) * (i + 1)
            for i in (0, 1)]
    inputs = []
    for i in (0, 1):
        inputs.append(http.InferInput(f"INPUT{i}", data[i].shape, "FP32"))
        inputs[i].set_data_from_numpy(data[i], binary_data=binary)
    return inputs, data[0] + data[1] + 1


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_infer(client, binary_in, binary_out):
    inputs, expected = tensors(binary_in)
    outputs = [http.InferRequestedOutput("OUTPUT0", binary_data=binary_out)]
    for given in (outputs, None):
        result = client.infer("m", inputs, outputs=given, request_id="7", timeout=60_000_000,
                              priority=1)
        assert result.get_response()["id"] == "7"
        assert (result.as_numpy("OUTPUT0") == expected).all()


def test_many_at_once(client):
    inputs, expected = tensors(True)
    for pending in [client.async_infer("m", inputs) for _ in range(100)]:
        assert (pending.get_result().as_numpy("OUTPUT0") == expected).all()


def test_the_calls_of_the_client(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("m")
    assert not client.is_model_ready("nope")
    assert client.get_server_metadata()["name"] == "pawl"
    assert client.get_model_metadata("m")["inputs"][0]["shape"] == [-1, 4]
    assert client.get_model_config("m")["max_batch_size"] == 8
    assert client.get_model_repository_index()[0]["state"] == "READY"
    client.unload_model("m")
    assert not client.is_model_ready("m")
    client.load_model("m")
    inputs, _ = tensors(True)
    client.infer("m", inputs)
    assert client.get_inference_statistics("m")["model_stats"][0]["inference_count"] == 2
    with pytest.raises(http.InferenceServerException,
                       match="unknown model: 'nope' is not found"):
        client.infer("nope", inputs)
