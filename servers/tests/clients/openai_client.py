"""OpenAI's client drives a router. Arguments: its address, and the addresses of the decode and the prefill."""

import json
import sys
import time
import urllib.request

import openai

ROUTER, DECODE, PREFILL = sys.argv[1:4]
MODEL = "mini-llama"
PROMPT = "Once upon a time there was a prompt of several blocks. "
CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": PROMPT}]}]
# Options of a request that has the same answer each time.
SAME = {"model": MODEL, "max_tokens": 24, "temperature": 0.8, "top_p": 0.9, "seed": 7}

client = openai.OpenAI(base_url=f"http://{ROUTER}/v1", api_key="any", timeout=60, max_retries=0)


def health(address):
    with urllib.request.urlopen(f"http://{address}/health", timeout=10) as answer:
        return json.load(answer)["cache"]


def wait_until_idle():
    """Waits until no server works on a text and all blocks are back."""
    end = time.monotonic() + 60
    while True:
        caches = [health(address) for address in (DECODE, PREFILL)]
        if all(cache["blocks"]["texts"] == 0 and cache["blocks"]["idle"] == cache["blocks"]["all"] for cache in caches):
            return caches
        assert time.monotonic() < end, caches
        time.sleep(0.02)


def refused(kind, status, param, code, call):
    try:
        call()
    except kind as error:
        found = (error.status_code, error.param, error.code)
        assert found == (status, param, code), (found, error)
        assert error.message, error
    else:
        raise AssertionError(f"not refused: {param}")


def models():
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    refused(openai.NotFoundError, 404, "model", "model_not_found", lambda: client.models.retrieve("gpt-4"))


def completions():
    whole = client.completions.create(prompt=PROMPT, **SAME)
    text, usage = whole.choices[0].text, whole.usage
    assert whole.object == "text_completion" and whole.id.startswith("cmpl-") and text
    assert whole.choices[0].finish_reason in ("length", "stop") and whole.choices[0].logprobs is None
    assert usage.prompt_tokens == len(PROMPT) + 1 and 1 <= usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert client.completions.create(prompt=PROMPT, **SAME).choices[0].text == text
    pieces = list(client.completions.create(prompt=PROMPT, stream=True, **SAME))
    assert "".join(piece.choices[0].text for piece in pieces) == text
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert all(piece.usage is None for piece in pieces)
    options = {"include_usage": True}
    pieces = list(client.completions.create(prompt=PROMPT, stream=True, stream_options=options, **SAME))
    assert pieces[-1].choices == [] and pieces[-1].usage == usage
    # Prompts of tokens, and several at once.
    tokens = [256, *PROMPT.encode()]
    several = client.completions.create(prompt=[tokens, tokens], **SAME)
    assert [choice.text for choice in several.choices] == [text, text]
    assert [choice.index for choice in several.choices] == [0, 1]
    other = client.completions.create(prompt=PROMPT, **{**SAME, "seed": 8})
    assert other.choices[0].text != text
    greedy = {**SAME, "temperature": 0}
    seeds = [client.completions.create(prompt=PROMPT, **{**greedy, "seed": seed}).choices[0].text for seed in (1, 2)]
    assert seeds[0] == seeds[1]


def ends():
    one = client.completions.create(prompt=PROMPT, **{**SAME, "max_tokens": 1})
    assert one.usage.completion_tokens == 1 and one.choices[0].finish_reason == "length"
    text = client.completions.create(prompt=PROMPT, **SAME).choices[0].text
    stop = text[2:4]
    for stops in (stop, [stop, "never said"]):
        whole = client.completions.create(prompt=PROMPT, stop=stops, **SAME)
        assert whole.choices[0].text == text[: text.index(stop)] and whole.choices[0].finish_reason == "stop"
        pieces = client.completions.create(prompt=PROMPT, stop=stops, stream=True, **SAME)
        assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text


def chat():
    whole = client.chat.completions.create(messages=CHAT, **SAME)
    message = whole.choices[0].message
    assert whole.object == "chat.completion" and message.role == "assistant" and message.content
    pieces = list(
        client.chat.completions.create(messages=CHAT, stream=True, stream_options={"include_usage": True}, **SAME)
    )
    assert pieces[0].object == "chat.completion.chunk" and pieces[0].choices[0].delta.role == "assistant"
    deltas = [piece.choices[0].delta.content or "" for piece in pieces if piece.choices]
    assert "".join(deltas) == message.content
    assert pieces[-1].usage == whole.usage
    limit = {**SAME, "max_completion_tokens": 3}
    del limit["max_tokens"]
    assert client.chat.completions.create(messages=CHAT, **limit).usage.completion_tokens <= 3
    # The client's own reader of streams.
    with client.chat.completions.stream(messages=CHAT, **SAME) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
    assert text == message.content


def refusals():
    bad = openai.BadRequestError

    def completion(**more):
        return lambda: client.completions.create(**{"prompt": "a", **SAME, **more})

    def conversation(**more):
        return lambda: client.chat.completions.create(**{"messages": CHAT, **SAME, **more})

    for more in ({"n": 2}, {"logprobs": 1}, {"echo": True}, {"best_of": 2}, {"suffix": "a"}, {"presence_penalty": 1}):
        refused(bad, 400, next(iter(more)), "unsupported_parameter", completion(**more))
    tool = {"type": "function", "function": {"name": "a"}}
    for more in ({"n": 2}, {"logprobs": True}, {"tools": [tool]}, {"response_format": {"type": "json_object"}}):
        refused(bad, 400, next(iter(more)), "unsupported_parameter", conversation(**more))
    for more in ({"temperature": 3}, {"top_p": -1}, {"max_tokens": 0}, {"stop": ["a"] * 5}, {"prompt": [999]}):
        refused(bad, 400, next(iter(more)), "invalid_value", completion(**more))
    refused(bad, 400, "max_tokens", "context_length_exceeded", completion(max_tokens=4000))
    long = [{"role": "user", "content": "a" * 4000}]
    refused(bad, 400, "messages", "context_length_exceeded", conversation(messages=long))
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]
    refused(bad, 400, "messages", "unsupported_content", conversation(messages=picture))
    refused(openai.NotFoundError, 404, "model", "model_not_found", completion(model="gpt-4"))
    refused(openai.NotFoundError, 404, None, "not_found", lambda: client.embeddings.create(model=MODEL, input="a"))
    # Fields that nobody knows are nobody's error.
    completion(extra_body={"a_field_of_tomorrow": 1}, user="somebody")()


def aborts():
    more = {**SAME, "max_tokens": 1900, "extra_body": {"ignore_eos": True}}
    before = wait_until_idle()[0]["computed"]
    for create, prompt in (
        (client.completions.create, {"prompt": PROMPT}),
        (client.chat.completions.create, {"messages": CHAT}),
    ):
        stream = create(stream=True, **prompt, **more)
        for _ in range(3):
            next(stream)
        assert health(DECODE)["blocks"]["texts"] == 1
        stream.close()
    computed = wait_until_idle()[0]["computed"] - before
    assert computed < 2 * 1900, f"{computed} tokens were computed, as many as if nobody had gone"


for part in (models, completions, ends, chat, refusals, aborts):
    part()
    wait_until_idle()
    print(part.__name__, "ok", flush=True)
