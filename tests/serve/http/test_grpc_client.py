# SPDX-License-Identifier: Apache-2.0
"""Triton's own client for gRPC."""
import queue
import threading

import pytest

from conftest import SOON, soon

numpy = pytest.importorskip("numpy")
grpc = pytest.importorskip("tritonclient.grpc")
aio = pytest.importorskip("tritonclient.grpc.aio")


@pytest.fixture
def client(server):
    server.model("m", inputs=2, add=1)
    server.start()
    one = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    yield one
    one.close()


def tensors(rows=2, module=grpc):
    data = [numpy.arange(rows * 4, dtype=numpy.float32).reshape(rows, 4) * (i + 1)
            for i in (0, 1)]
    inputs = []
    for i in (0, 1):
        inputs.append(module.InferInput(f"INPUT{i}", data[i].shape, "FP32"))
        inputs[i].set_data_from_numpy(data[i])
    return inputs, data[0] + data[1] + 1


def test_infer(client):
    inputs, expected = tensors()
    for given in ([grpc.InferRequestedOutput("OUTPUT0")], None):
        result = client.infer("m", inputs, outputs=given, request_id="7", timeout=60_000_000,
                              priority=1, client_timeout=SOON)
        assert result.get_response().id == "7"
        assert (result.as_numpy("OUTPUT0") == expected).all()


def test_many_at_once(client):
    inputs, expected = tensors()
    answers = queue.Queue()
    for _ in range(1000):
        client.async_infer("m", inputs, lambda result, error: answers.put((result, error)))
    for _ in range(1000):
        result, error = answers.get(timeout=SOON)
        assert error is None and (result.as_numpy("OUTPUT0") == expected).all()


def test_a_stream(client):
    inputs, expected = tensors()
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for i in range(500):
        client.async_stream_infer("m", inputs, request_id=str(i))
    client.async_stream_infer("nope", inputs)
    seen, errors = set(), []
    for _ in range(501):
        result, error = answers.get(timeout=SOON)
        if error:
            errors.append(error.message())
            continue
        seen.add(result.get_response().id)
        assert (result.as_numpy("OUTPUT0") == expected).all()
    assert seen == {str(i) for i in range(500)}
    assert errors == ["Request for unknown model: 'nope' is not found"]
    client.stop_stream()


def test_asyncio(server):
    import asyncio
    server.model("m", inputs=2, add=1)
    server.start()

    async def main():
        async with aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            inputs, expected = tensors(module=aio)
            for result in await asyncio.gather(*(client.infer("m", inputs)
                                                 for _ in range(100))):
                assert (result.as_numpy("OUTPUT0") == expected).all()
    asyncio.run(main())


def test_the_calls_of_the_client(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("m")
    assert not client.is_model_ready("nope")
    assert client.get_server_metadata().name == "pawl"
    assert list(client.get_model_metadata("m").inputs[0].shape) == [-1, 4]
    assert client.get_model_config("m").config.max_batch_size == 8
    assert client.get_model_repository_index().models[0].state == "READY"
    client.unload_model("m")
    assert not client.is_model_ready("m")
    client.load_model("m")
    inputs, _ = tensors()
    client.infer("m", inputs)
    stat = client.get_inference_statistics("m").model_stats[0]
    assert stat.inference_count == 2 and stat.inference_stats.success.count == 1


def test_errors(client):
    inputs, _ = tensors()

    def status(call, *args, **more):
        with pytest.raises(grpc.InferenceServerException) as error:
            call(*args, **more)
        return error.value.status().split(".")[1]
    assert status(client.infer, "nope", inputs) == "NOT_FOUND"
    assert status(client.infer, "m", inputs[:1]) == "INVALID_ARGUMENT"
    assert status(client.get_system_shared_memory_status) == "UNIMPLEMENTED"


def test_cancel(server):
    server.model("m", gate=1)
    server.start("--workers=1")
    client = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    inputs, _ = tensors(1)
    ended = threading.Event()
    call = client.async_infer("m", inputs[:1], lambda result, error: ended.set())
    soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") == 1, "the run")
    call.cancel()
    soon(lambda: server.metric("pawl_serve_canceled_total", "m") == 1, "the cancel")
    assert ended.wait(SOON)
    with pytest.raises(grpc.InferenceServerException, match="Deadline Exceeded"):
        client.infer("m", inputs[:1], client_timeout=0.2)
    client.close()


def test_a_client_of_a_server_that_stops_uses_another_connection(server):
    server.model("m", inputs=2, add=1)
    server.start(config="[server]\ngrace = 60\n")
    client = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    inputs, expected = tensors()
    client.infer("m", inputs)
    server.process.terminate()
    soon(lambda: server.events("stopping"), "the signal")
    for _ in range(200):
        assert (client.infer("m", inputs).as_numpy("OUTPUT0") == expected).all()
    client.close()
