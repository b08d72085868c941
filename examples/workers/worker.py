#!/usr/bin/env python3
"""A worker of flowapi with nothing but Python's standard library: worker.py LANE. docs/worker-guide.md explains it."""
import http.client, json, os, signal, socket, sys, threading, time, urllib.request, uuid

URL = os.environ.get("FLOWAPI_URL", "http://127.0.0.1:8080") + "/v1"
HEADERS = {"Content-Type": "application/json", "Prefer": "wait=5"}
if "FLOWAPI_TOKEN" in os.environ:
    HEADERS["Authorization"] = "Bearer " + os.environ["FLOWAPI_TOKEN"]

def work(kind, payload, end):
    """Put yours here. It raises what goes wrong, and raises when it ends early because end is set."""
    if kind == "sleep" and not end.wait(payload):
        return payload
    raise RuntimeError(f"{kind} was not done")

class Refusals(urllib.request.HTTPErrorProcessor):
    http_response = https_response = lambda self, request, response: response  # they are answers, too

def post(path, body, ask=urllib.request.build_opener(Refusals).open):
    """Repeats a request, with one key, until it is answered, or a lease could be over. Returns the status and the answer."""
    key, begun = str(uuid.uuid4()), time.monotonic()
    while time.monotonic() - begun < 20:
        request = urllib.request.Request(URL + path, json.dumps(body).encode(), HEADERS | {"Idempotency-Key": key})
        try:
            with ask(request, timeout=10) as answer:
                text = answer.read().decode()
                if answer.status < 500 and answer.status != 429 and "idempotency_in_flight" not in text:
                    return answer.status, json.loads(text or "{}")
        except (OSError, http.client.HTTPException, ValueError): pass  # the server is away, or something between has answered
        time.sleep(0.5)
    return 0, {}

def keep(at, held, end, over):
    """Renews the lease until the work is over, and ends it early when the lease is lost, or the server wants that."""
    while not over.wait(5):
        status, answer = post(at + "/renew", held)
        if status != 200 or "cancel" in answer["directives"]:
            end.set()

def run(execution, held, end):
    at, over = "/executions/" + execution["id"], threading.Event()
    threading.Thread(target=keep, args=(at, held, end, over), daemon=True).start()
    try:
        status, answer = post(at + "/complete", held | {"result": work(execution["kind"], execution["payload"], end)})
        if status in (413, 422): raise ValueError(answer["detail"])  # this is no result
    except Exception as error:
        if end.is_set(): post(at + "/release", held)  # what is to be cancelled is cancelled by that, and what is lost is refused
        else: post(at + "/fail", held | {"reason": f"{type(error).__name__}: {error}"[:4000]})
    over.set()

stopped, end, signals = threading.Event(), threading.Event(), {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
threading.Thread(target=lambda: (signal.sigwait(signals), stopped.set(), end.set()), daemon=True).start()
while not stopped.is_set():
    status, answer = post("/claims", {"lane": sys.argv[1], "worker_id": socket.gethostname()})
    if status not in (0, 200, 204): sys.exit(answer["detail"])
    for claim in answer.get("claims", []):
        end = end if stopped.is_set() else threading.Event()
        run(claim["execution"], {"handle": claim["handle"]}, end)
