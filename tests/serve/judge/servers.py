# SPDX-License-Identifier: Apache-2.0
"""The servers, each a session of processes on one core."""
import glob
import http.client
import json
import os
import shutil
import signal
import subprocess
import time

import client
import models

SITE = models.SITE
LIBS = os.path.join(SITE, "nvidia_pytriton.libs")
TRITON = os.path.join(SITE, "pytriton", "tritonserver")


def session_processes(sid):
    """CPU times, in seconds, of the live processes of a session."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="ascii", errors="replace") as f:
                head, rest = f.read().rsplit(")", 1)
        except OSError:
            continue
        rest = rest.split()
        if int(rest[3]) == sid and rest[0] != "Z":
            ticks = int(rest[11]) + int(rest[12])
            found[int(head.split()[0])] = ticks / os.sysconf("SC_CLK_TCK")
    return found


class Server:
    """pawl serve; command is the program and its first arguments."""

    def __init__(self, name, command, files, folder, port, core):
        self.name, self.command, self.files = name, command, files
        self.folder, self.port, self.core = os.path.join(folder, name), port, core
        self.grpc_port = port + 10
        self.repository = os.path.join(self.folder, "models")
        self.process, self.warm = None, set()

    triton = twin = floor = False

    def arguments(self):
        config = os.path.join(self.folder, "config.ini")
        with open(config, "w", encoding="ascii") as f:
            f.write(models.pawl_config())
        return [*self.command, f"--config={config}", f"--repository={self.repository}",
                f"--port={self.port}", f"--grpc-port={self.grpc_port}", "--io-threads=1",
                "--workers=1"], os.environ

    def start(self):
        os.makedirs(self.folder, exist_ok=True)
        models.repository(self.files, self.repository, self.triton)
        argv, env = self.arguments()
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(["taskset", "-c", str(self.core), *argv], env=env,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        end = time.monotonic() + 60
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"{self.name} did not start: {self.folder}/log")
            time.sleep(0.05)

    def ready(self):
        try:
            return self.call("GET", "/v2/health/ready")[0] == 200
        except OSError:
            return False

    def call(self, method, path, timeout=60):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, body=b"{}" if method == "POST" else None)
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def use(self, *names):
        """Serve these models, and wait until they are ready."""
        for name in names:
            if name not in self.warm:
                client.warm(self.port, name, models.inputs_of(self.files, name),
                            models.MAX_BATCH)
                self.warm.add(name)

    def load(self, name):
        status, text = self.call("POST", f"/v2/repository/models/{name}/load")
        if status != 200:
            raise RuntimeError(f"{self.name}: load of {name}: {status} {text}")

    def cpu(self):
        return sum(session_processes(self.process.pid).values())

    def end(self):
        """Begin to stop."""
        if self.process:
            self.process.terminate()

    def stop(self):
        """End the whole session, also the processes of its models."""
        if not self.process:
            return
        self.end()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in session_processes(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process = None


class Triton(Server):
    """The server of nvidia-pytriton.  A model is loaded when it is used: it is a process."""

    triton = True

    def arguments(self):
        backends = os.path.join(self.folder, "backends")
        shutil.rmtree(backends, ignore_errors=True)
        shutil.copytree(os.path.join(TRITON, "backends"), backends)
        stubs = os.path.join(TRITON, "python_backend_stubs", "3.11")
        shutil.copy(os.path.join(stubs, "triton_python_backend_stub"),
                    os.path.join(backends, "python"))
        env = dict(os.environ, LD_LIBRARY_PATH=LIBS, OMP_NUM_THREADS="1")
        return [os.path.join(TRITON, "bin", "tritonserver"),
                f"--model-repository={self.repository}", f"--backend-directory={backends}",
                "--model-control-mode=explicit", "--allow-gpu-metrics=false",
                "--allow-metrics=false", "--http-address=127.0.0.1",
                f"--http-port={self.port}", "--grpc-address=127.0.0.1",
                f"--grpc-port={self.grpc_port}", "--log-info=false",
                "--exit-timeout-secs=3"], env

    def use(self, *names):
        status, text = self.call("POST", "/v2/repository/index")
        assert status == 200, text
        loaded = {m["name"] for m in json.loads(text) if m.get("state") == "READY"}
        for name in loaded - set(names):
            self.call("POST", f"/v2/repository/models/{name}/unload")
            self.warm.discard(name)
        for name in set(names) - loaded:
            self.load(name)
        super().use(*names)


class Floor(Server):
    """floor.c: answers with a constant, as long as pawl's answer for the empty model."""

    floor = True
    models = ("empty", "small")

    def arguments(self):
        argv = []
        for name in self.models:
            inputs = [{"name": i, "datatype": client.TYPES[kind][0], "shape": shape}
                      for i, kind, shape in models.inputs_of(self.files, name)]
            argv.append(self.answer(f"GET /v2/models/{name} ", "application/json",
                                    json.dumps({"name": name, "inputs": inputs})))
        head = json.dumps({"model_name": "empty", "model_version": "1", "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 16],
             "parameters": {"binary_data_size": 64}}]}, separators=(",", ":"))
        argv.append(self.answer("POST ", "application/octet-stream", head + "\0" * 64,
                                f"Inference-Header-Content-Length: {len(head)}\r\n"))
        argv.append(self.answer("GET ", "application/json", "{}"))
        return [*self.command, str(self.port), *argv], os.environ

    def answer(self, start, kind, body, more=""):
        path = os.path.join(self.folder, start.strip().replace("/", "_"))
        with open(path, "w", encoding="ascii", newline="") as f:
            f.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}"
                    f"Content-Length: {len(body)}\r\n\r\n{body}")
        return f"{start}={path}"

    def use(self, *names):
        pass
