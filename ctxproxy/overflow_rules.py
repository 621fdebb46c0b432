"""The rules by which a provider's error is recognised: data only, read by `overflow`.

Three tables, each in order of precedence, the first match wins:

* `RULES` say what an error *is* (`says`), from a machine-readable code, from one sentence, or from the whole text.
  A rule without a `provider` describes a form that any provider may use; a rule with one is a quirk of that provider.
* `FIGURES` say where the numbers stand. Several apply to one text; each fills what the earlier ones left open.
* `FINGERPRINTS` name the provider by its wording. They never influence the class.

Patterns meet text that `overflow` has normalised: lower case, plain quotes, no backticks, single spaces. They are linear:
gaps are atomic (`(?>.*?x)`: the first x, no way back) or short and bounded, because an error body is untrusted input.
`{N}` is a number, `{S}` `{O}` `{C}` are the vocabulary below: subject, "exceeds", and a name for the context window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "FIELDS",
    "FIGURES",
    "FINGERPRINTS",
    "HEADERS",
    "RULES",
    "VOCABULARY",
    "Figure",
    "Fingerprint",
    "Rule",
    "Says",
]

Says = Literal["overflow", "shared", "room", "payload", "rate", "other"]
"""What a rule claims. `overflow`: the prompt alone is too long. `shared`: prompt and output together are too long; the
numbers decide, without numbers the prompt is. `room`: the same, but without numbers only the output is. `payload`: bytes.
`rate`: rate limit or quota. `other`: looks like one of these and is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way to recognise an error. `on` is what the pattern sees; `weak` wording does not count on a 5xx status."""

    name: str
    says: Says
    pattern: str
    source: str
    on: Literal["text", "sentence", "code", "figures"] = "sentence"
    provider: str | None = None
    weak: bool = False
    numbers: bool = True  # False: the figures in this text are no token counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Where a number stands. Groups: window, limit (an input limit), prompt, bound (a lower bound of the prompt),
    total, output, tpm, asked (tokens of a rate-limited request), cap (output limit), chars, debt (window - prompt < 0)."""

    name: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A wording that only one provider or server uses."""

    provider: str
    pattern: str


_ADJ = r"(?:(?:allowed|supported|permitted|model|total|combined|input|prompt|context|sequence|token|message|text|number of) ){0,4}"
_LIMIT_ADJ = r"(?:(?:token|input|context|length|maximum|max|prompt) ){0,3}"

VOCABULARY: dict[str, str] = {
    # Digits with separators, or with k/m. Possessive, so that the unit check cannot be escaped by dropping a digit.
    "N": r"(?:\d{1,3}(?:[,_'\u2009\u202f\u00a0]\d{3})++|\d{1,12}+(?:\.\d{1,3})?+(?:[km]\b)?+)"
    r"(?!\d|\s?(?:char|byte|[kmg]i?b\b|pixel|page|image))",
    "S": r"(?<![a-z])(?:prompt|inputs?|messages?|conversation|history|query|context)(?![a-z])",
    "T": r"(?<![a-z])(?:request(?:ed)?|tokens?|sequence length|total length)(?![a-z])",
    "O": r"(?:>|(?<![a-z])(?:exceed(?:s|ed|ing)?|overflow(?:s|ed)?|surpass(?:es|ed)?|too (?:long|large|big|many)"
    r"|(?:longer|larger|greater|bigger|more|higher) than|over the|above the|beyond|(?:not|n't|cannot) fit"
    r"|must (?:not exceed|be (?:less|smaller|shorter|fewer|lower|below|under|no more|at most)|have (?:less|fewer|at most))"
    r"|only supports?|supports? (?:only|up to))(?![a-z]))",
    "C": r"(?:context[ _-]?(?:window|length|size|limit|len|budget|capacity)|n_ctx|num_ctx"
    r"|(?:model's|available|maximum|max|supported) context|max_(?:model|seq|sequence|context|position|input|prompt|total)_?[a-z_]{0,24}"
    rf"|max(?:imum)? {_ADJ}(?:tokens?|token count|length|context|sequence|input)(?! per)"
    rf"|(?:model|tokens?|input|prompt|context|length|sequence)(?:'s)? {_LIMIT_ADJ}(?:limit|maximum|capacity))",
    # A count of prompt tokens, as a noun.
    "P": r"(?:(?:prompt|input|context|messages?|request|requested|query|total)[ _](?:input |prompt )?"
    r"(?:tokens?(?: count| length)?|lengths?)(?![a-z])"
    r"|tokens? (?:count )?(?:in|of|for) (?:the |your |this )?(?:prompt|input|request|messages?|context|conversation))",
    "OUT": r"max_?(?:new_?|completion_?|output_?)?tokens",
    # Words and signs that may stand between the name of a limit and its number.
    "G": r"(?:[\s:=(\[~\"']|is|was|are|of|only|just|at|set to|allowed|supported|tokens?|limit|about|approximately|equal to){0,9}",
    # Where a short sentence may begin: start, punctuation of a relay's prefix, or "because"; then articles and the like.
    "A": r"(?:^|[:>|\])\"'\-,({=] ?|because )(?:(?:error|the|this|your|a|an|total|current|user|chat|entire|model|sorry) ){0,4}",
}

_D = "a provider's documented or observed error"

RULES: tuple[Rule, ...] = (
    # -- true overflows that a veto below would hide: bytes or characters of *text*, tokens called a body size ---------
    Rule(
        name="text-bytes",
        says="overflow",
        provider="anthropic",
        numbers=False,
        on="text",
        pattern=r"too many total text bytes",
        source="Messages API: 9,000,000-byte cap on text; compaction cures it",
    ),
    Rule(
        name="titan-max-length",
        says="overflow",
        provider="bedrock",
        numbers=False,
        on="text",
        pattern=r"expected max_?length: ?\d+, actual: ?\d+",
        source="Bedrock schema check of the prompt, in characters",
    ),
    Rule(
        name="size-in-tokens",
        says="overflow",
        on="text",
        pattern=r"max(?:imum)? (?:request |body |prompt )?size(?: is|:| of)? {N} tokens",
        source="GitHub Models, HTTP 413",
    ),
    Rule(
        name="vllm-characters",
        says="shared",
        provider="vllm",
        on="text",
        pattern=r"upper bound for \d+ input tokens|prompt contains \d+ characters|passed \d+ input characters",
        source="vLLM renderer: check before tokenization",
    ),
    Rule(
        name="negative-max-tokens",
        says="overflow",
        provider="vllm",
        pattern=r"max_tokens must be at least 1, got -\d+",
        source="vLLM <= 0.6: default = window - prompt went negative",
    ),
    # -- rate limits and quotas ------------------------------------------------------------------------------------------
    Rule(
        name="rate-code",
        says="rate",
        on="code",
        pattern=r"(?:.*_)?rate_?limit(?:_|ed|error|exceeded|$).*|tokens|insufficient_quota|.*quota.*|resource_?exhausted"
        r"|too_many_requests|throttling\w*|overloaded_error|usage_limit\w*|usage_not_included|billing\w*|payment_required",
        source="OpenAI, Anthropic, Google, AWS codes",
    ),
    Rule(
        name="rate-per-time",
        says="rate",
        on="text",
        pattern=r"(?:per|this|each|every)[ -](?:min(?:ute)?|hour|day|second|month|week)\b|tokens?/min|\b(?:tpm|rpm|tpd|rpd)\b"
        r"|\b(?:monthly|daily|weekly|hourly)\b",
        source="TPM/RPM wording of OpenAI, Groq, Anthropic; OpenRouter key budgets",
    ),
    Rule(
        name="rate-words",
        says="rate",
        on="text",
        pattern=r"rate[ _-]?limit|too many requests|throttl|please wait|wait before|high demand|peak load|slow down|overloaded",
        source="Bedrock 'Too many tokens, please wait'; generic",
    ),
    Rule(
        name="quota-words",
        says="rate",
        on="text",
        pattern=r"\bquota\b|\bcredits?\b|insufficient (?:balance|funds)|billing|only afford|usage limit|spend(?:ing)? limit"
        r"|extra usage is required|your (?:per-model|plan|account|organi[sz]ation|project|team|workspace)(?:'s)? \w* ?limit",
        source="OpenAI, OpenRouter 402, Anthropic 429 for long context",
    ),
    Rule(
        name="rate-cjk",
        says="rate",
        on="text",
        pattern=r"频繁|频率|限流|每分钟|并发|次数|配额|额度|余额|欠费|套餐",
        source="Chinese gateways",
    ),
    # -- look-alikes: other limits, other errors --------------------------------------------------------------------------
    Rule(
        name="string-length",
        says="other",
        on="text",
        pattern=r"string[ _](?:too[ _]long|above[ _]max)|(?:expected a|a|the) string with (?:maximum )?length|array too long|array_above_max",
        source="OpenAI parameter validation",
    ),
    Rule(
        name="media-limit",
        says="other",
        on="text",
        pattern=r"(?<!tokens of )\b(?:image|audio|video|pdf|file|document|attachment)s?\b[^.]{0,40}?"
        r"(?:exceed|too (?:large|long|big|many)|larger than)|pdf pages|\bpixels\b",
        source="Anthropic image, PDF limits",
    ),
    Rule(
        name="output-cap",
        says="other",
        on="text",
        pattern=r"(?:maximum|allowed) number of output tokens|at most {N} (?:completion|output) tokens|range of {OUT}\b"
        r"|maxoutputtokens value|integer above maximum|maximum tokens you requested exceeds|{OUT} ?(?:参数|非法|超过|超出)"
        r"|(?:output|completion) token limit",
        source="Anthropic, OpenAI, DashScope, Vertex, Volcengine, Bedrock",
    ),
    Rule(
        name="output-param",
        says="other",
        pattern=r"(?<!\+ ){OUT}['\"]?:? (?:value )?(?:must|should|can(?:not)?|is not|has to|needs to|exceeds|(?:is )?(?:too large|greater|above))"
        r"(?!.*(?:context|input tokens))",
        source="max_tokens against the model's output limit or another parameter",
    ),
    Rule(
        name="unsupported-param",
        says="other",
        on="text",
        pattern=r"unsupported (?:parameter|value)|unknown parameter|unrecognized request argument",
        source="OpenAI",
    ),
    Rule(
        name="tool-pairing",
        says="other",
        on="text",
        pattern=r"tool_use ids?\b|tool_use_id|tool_call_ids?\b|role '?tool\b|no tool call found|tool id\b|tool_result blocks?",
        source="Anthropic, OpenAI, MiniMax: often made by a bad compaction",
    ),
    Rule(
        name="memory",
        says="other",
        on="text",
        pattern=r"\d ?gi?b\b|out of memory|gpu memory|\bvram\b|cpu capacity",
        source="memory guards of local servers; SageMaker",
    ),
    Rule(
        name="batch-limit",
        says="other",
        on="text",
        pattern=r"{N} tokens per request|batch size|max_tokens_per_request|per batch",
        source="embedding batches: OpenAI, llama.cpp n_ubatch",
    ),
    Rule(
        name="too-small",
        says="other",
        on="text",
        pattern=r"minimum token count|start caching|(?:context|window)[a-z ]{0,12} too (?:small|short)",
        source="Vertex context caching; clients that want a larger window",
    ),
    Rule(
        name="client-text",
        says="other",
        on="text",
        pattern=r"token indices sequence length|bufio\.scanner|file content \(|query or prefix prompt|max tokens supported is"
        r"|(?:compaction|compacting|summari[sz]ation)[a-z ]{0,20} (?:failed|error)|(?:failed|error|unable)[a-z ]{0,20} (?:compact|summari[sz])|^\W*warn(?:ing)?:",
        source="transformers, Go, Claude Code, Dify, diffusers, clients' own compaction",
    ),
    Rule(
        name="characters",
        says="other",
        on="text",
        pattern=r"\d ?(?:characters|chars)\b|characters_too_long|字符",
        source="character caps of single fields",
    ),
    # -- bytes ---------------------------------------------------------------------------------------------------------------
    Rule(
        name="byte-size",
        says="payload",
        on="text",
        pattern=r"\d ?(?:bytes|ki?b|mi?b)\b|payload (?:size|too large)|(?:request|payload|content) entity too large|content too large"
        r"|exceeds? the maximum (?:allowed )?size|(?:upload|buffer) limit|total message size",
        source="HTTP servers, Gemini, Anthropic 413, Kimi",
    ),
    Rule(
        name="string-value-length",
        says="payload",
        on="text",
        pattern=r"string value length|member must have length less than",
        source="Jackson (DashScope), Bedrock body limit",
    ),
    # -- quirks of one provider -------------------------------------------------------------------------------------------
    Rule(
        name="vllm-max-tokens",
        says="shared",
        provider="vllm",
        on="text",
        pattern=r"max_(?:completion_)?tokens'? is too large: ?{N}\. .{0,40}maximum context length",
        source="vLLM >= 0.9",
    ),
    Rule(
        name="anthropic-sum",
        says="room",
        provider="anthropic",
        pattern=r"input length and {OUT} exceed context limit",
        source="Messages API: only when the prompt alone fits",
    ),
    Rule(
        name="tgi-sum",
        says="shared",
        provider="tgi",
        pattern=r"inputs tokens \+ max_new_tokens must be <= ?{N}",
        source="text-generation-inference router/validation.rs",
    ),
    Rule(
        name="tgi-inputs",
        says="overflow",
        provider="tgi",
        pattern=r"inputs must have less than {N} tokens",
        source="text-generation-inference router/validation.rs",
    ),
    Rule(
        name="dashscope-range",
        says="overflow",
        provider="dashscope",
        pattern=r"range of input length should be \[\d+, ?\d+\]",
        source="DashScope InvalidParameter",
    ),
    Rule(
        name="minimax-window",
        says="overflow",
        provider="minimax",
        numbers=False,
        pattern=r"invalid params, context window exceeds limit",
        source="MiniMax; (2013) is its generic code, no number",
    ),
    Rule(
        name="volc-message-tokens",
        says="overflow",
        provider="volcengine",
        numbers=False,
        pattern=r"exceed max message tokens",
        source="Volcengine Ark; the meaning of its number is unknown",
    ),
    Rule(
        name="zhipu-1261",
        says="overflow",
        provider="zhipu",
        on="code",
        pattern=r"1261",
        source="Zhipu / z.ai error table",
    ),
    Rule(
        name="ollama-delta",
        says="overflow",
        provider="ollama",
        numbers=False,
        pattern=r"exceeded (?:max )?context length by {N}",
        source="Ollama: the number is the excess",
    ),
    Rule(
        name="sambanova-generation",
        says="shared",
        provider="sambanova",
        pattern=r"requested generation length {N} is not possible",
        source="SambaNova 2024",
    ),
    Rule(
        name="snowflake-max-tokens",
        says="overflow",
        provider="snowflake",
        pattern=r"^\W*max tokens of {N} exceeded",
        source="Snowflake Cortex",
    ),
    # -- the general form ---------------------------------------------------------------------------------------------------
    Rule(
        name="output-over-context",
        says="room",
        pattern=r"{A}['\"]?{OUT}\b.{0,40}?{O}.{0,40}?{C}",
        source="max_tokens is the subject of the sentence",
    ),
    Rule(
        name="sum-over-context",
        says="shared",
        pattern=r"(?>.*?(?:{OUT}\b|completion|output tokens|generation|prediction|generated))(?>.*?{O}).*?(?:{C}|{N})",
        source="prompt and output are both named",
    ),
    Rule(name="prompt-over-context", says="overflow", pattern=r"(?>.*?{S})(?>.*?{O}).*?{C}", source=_D),
    Rule(name="request-over-context", says="shared", pattern=r"(?>.*?{T})(?>.*?{O}).*?{C}", source=_D),
    Rule(
        name="count-over-limit",
        says="overflow",
        pattern=r"(?>.*?{P})(?>.*?{O}).*?(?:limit|max|allowed|threshold|supported|{N})",
        source=_D,
    ),
    Rule(
        name="over-context",
        says="overflow",
        pattern=r"^\W*(?:\w+ ){0,2}?exceed\w* (?:\w+ ){0,3}?{C}",
        source="shortened relays",
    ),
    Rule(
        name="context-exceeded",
        says="shared",
        pattern=r"{A}(?:(?:maximum|max|model's|available|input|\w+'s) ){0,3}{C}s?[ :]*(?:(?:has|have|had|been|was|were|is|are|already) ){0,3}"
        r"(?:exceed|overflow|full\b|exhausted|reached|too (?:long|large))",
        source=_D,
    ),
    Rule(
        name="context-full",
        says="overflow",
        pattern=r"{A}(?:(?:is|ran|run|running) )?(?:out of context|context (?:is |was )?(?:full|exhausted|overflow|exceeded|too (?:long|large|big)))",
        source="local servers",
    ),
    Rule(
        name="too-long",
        says="overflow",
        pattern=r"{A}(?:prompt|inputs?|conversation|messages|message history|context)(?: (?:text|tokens?|length|messages|history)){0,2}"
        r"(?: (?:is|are|was|were|has|have become))? (?:far |much |way )?too (?:long|large|big)",
        source=_D,
    ),
    Rule(
        name="too-many-tokens",
        says="overflow",
        pattern=r"too many (?:input|prompt|context|message|total) tokens|too many tokens (?:in|for|:.{0,40}exceeded by)",
        source=_D,
    ),
    Rule(
        name="too-long-cjk",
        says="overflow",
        on="text",
        pattern=r"(?:上下文|输入|提示词|prompt|请求|消息|tokens?|对话|文本|内容)[^。，]{0,16}?(?:超过|超出|超长|过长|太长|大于|超限)"
        r"|超[过出](?:了)?(?:模型)?(?:的)?(?:最大)?(?:上下文|输入|token)"
        r"|(?:コンテキスト|プロンプト|入力|トークン)[^。、]{0,20}?(?:超え|超過|長すぎ)"
        r"|(?:컨텍스트|프롬프트|입력|토큰).{0,20}?(?:초과|너무 [긴길깁])",
        source="Chinese, Japanese, Korean gateways",
    ),
    # -- codes ------------------------------------------------------------------------------------------------------------
    Rule(
        name="context-code",
        says="shared",
        on="code",
        pattern=r"\w*(?:context_?(?:length|window|size|limit)?_?(?:exceed|overflow|too_)|exceed\w*_context|out_?of_?context)\w*",
        source="context_length_exceeded (OpenAI, also with max_tokens alone: numbers first), exceed_context_size_error,"
        " ContextWindowExceededError",
    ),
    Rule(
        name="prompt-code",
        says="overflow",
        on="code",
        pattern=r"\w*(?:(?:prompt|input|tokens?)_(?:is_)?too_(?:long|large|many)|prompt_?tokens?_?exceed|tokens?_limit_(?:reached|exceeded)"
        r"|content_length_exceeds|token_quantity_exceeded|(?:input|prompt)_(?:length|tokens?)_exceed|input_limit_exceeded)\w*",
        source="Mistral, Copilot, GitHub Models, Kiro, watsonx, xAI",
    ),
    # -- the numbers alone, then weak wording ---------------------------------------------------------------------------------
    Rule(
        name="numbers",
        says="shared",
        on="figures",
        pattern="",
        source="a window and a larger prompt or total are stated",
    ),
    Rule(
        name="reduce-length",
        says="shared",
        weak=True,
        pattern=r"(?:reduce|shorten|decrease)(?: the)? (?:(?:length|size|number) of (?:the |your |tokens in the )?)?(?:your )?(?:input )?"
        r"(?:messages\b|prompt\b|conversation|input length)",
        source="Groq and others: nothing but the advice",
    ),
    Rule(
        name="limit-stated",
        says="shared",
        weak=True,
        pattern=r"(?:max(?:imum)? (?:model |supported |allowed )?(?:context|prompt|input|sequence)|context|model's? max\w*) ?(?:length|window|size|limit|tokens)"
        r"(?: of \S{1,60})?(?: is|:| of|=)(?: only| just)? ?{N}",
        source="Bedrock Llama, Fireworks: only the limit is stated",
    ),
    # -- codes that a sentence may overrule -------------------------------------------------------------------------------------
    Rule(
        name="payload-code",
        says="payload",
        on="code",
        pattern=r"request_too_large|payload_too_large|request_entity_too_large|content_too_large",
        source="Anthropic 413; a gateway may put a prompt sentence under this type",
    ),
)

FIGURES: tuple[Figure, ...] = (
    Figure(name="rate-asked", pattern=r"limit:? (?P<tpm>{N})(?P<used>, used:? {N})?, requested:? (?P<asked>{N})"),
    Figure(
        name="sum-over",
        pattern=r"(?P<prompt>{N}) \+ (?P<output>{N}) ?(?:>|(?:is )?(?:greater|more|larger) than (?:max_seq_len )?)=? ?(?P<window>{N})",
    ),
    Figure(name="output-over-room", pattern=r"(?P<output>{N}) > (?P<window>{N}) - (?P<prompt>{N})"),
    Figure(name="keep-over-ctx", pattern=r"n_keep: ?(?P<prompt>{N}) ?>= ?n_ctx: ?(?P<window>{N})"),
    Figure(
        name="tokens-over",
        pattern=r"(?P<prompt>{N}) (?:input |prompt )?tokens? ?(?:>|exceeds?(?: the)? limit of|over the limit of) ?(?P<window>{N})",
    ),
    Figure(name="prompt-over", pattern=r"prompt(?: tokens limit exceeded:)? (?P<prompt>{N}) ?> ?(?P<window>{N})"),
    Figure(name="got-max-input", pattern=r"max input tokens ?= ?(?P<limit>{N}), got ?= ?(?P<prompt>{N})"),
    Figure(name="range", pattern=r"range of input length should be \[\d+, ?(?P<limit>\d+)\]"),
    Figure(
        name="sum-limit",
        pattern=r"max_new_tokens must be <= ?(?P<window>{N})(?:\. given: (?P<prompt>{N}) '?inputs'? ?tokens and (?P<output>{N}))?",
    ),
    Figure(name="inputs-limit", pattern=r"must have less than (?P<limit>{N}) tokens\. given: (?P<prompt>{N})"),
    Figure(
        name="passed", pattern=r"you passed (?P<bound>{N}) input tokens and requested (?P<output>{N}) output tokens"
    ),
    Figure(name="at-least", pattern=r"(?:contains|has) at least (?P<bound>{N}) (?:input |prompt )?tokens"),
    Figure(name="generation", pattern=r"prompt is (?P<prompt>{N}) tokens long, so generating (?P<output>{N}) tokens"),
    Figure(name="chars", pattern=r"(?:contains|passed) (?P<chars>\d+) (?:input )?characters"),
    Figure(name="debt", pattern=r"at least 1, got -(?P<debt>\d+)"),
    Figure(
        name="output-requested", pattern=r"requested (?:about |up to |~)?(?P<output>{N}) (?:output|completion) tokens"
    ),
    Figure(
        name="output-part",
        pattern=r"(?P<output>{N}) (?:tokens? )?(?:in|for|of) (?:the |your )?(?:completion|output|generation|response)\b",
    ),
    Figure(name="output-plus", pattern=r"\+ (?P<output>{N}) (?:output|completion)\b"),
    Figure(
        name="output-cap",
        pattern=r"(?:max_tokens: ?|max(?:_completion_)?_?tokens'? is too large: ?|maxoutputtokens value of )(?P<output>{N})(?! *>= )",
    ),
    Figure(
        name="output-got",
        pattern=r"expected a value <= ?{N}, but got (?P<output>{N})|requested up to (?P<output2>{N}) tokens",
    ),
    Figure(
        name="prompt-part",
        pattern=r"(?P<prompt>{N}) (?:tokens? )?(?:in|from|of) (?:the |your )?(?:input )?(?:messages|prompt|text input|input messages)\b",
    ),
    Figure(name="prompt-plus", pattern=r"\((?P<prompt>{N}) input\b"),
    Figure(
        name="total-requested",
        pattern=r"requested (?:a total of |about |approximately |~)?(?P<total>{N})(?: tokens|, max)",
    ),
    Figure(name="total-paren", pattern=r"\(requested: ?(?P<total>{N})\)"),
    Figure(name="total-take", pattern=r"will take (?P<total>{N}) tokens"),
    Figure(name="total-current", pattern=r"current length is (?P<total>{N})"),
    Figure(name="total-received", pattern=r"\breceived (?P<total>{N})"),
    Figure(name="total-count", pattern=r"total (?:token count|tokens?)(?: count)?(?: is| of|:) (?P<total>{N})"),
    Figure(name="resulted", pattern=r"resulted in (?P<prompt>{N}) tokens"),
    Figure(
        name="prompt-has",
        pattern=r"(?:prompt|request|input|messages?|context)(?: \w+)? (?:contains?|has|have|is|was) ?(?:about |approximately |~)?(?P<prompt>{N}) ?(?:input |prompt )?tokens?",
    ),
    Figure(
        name="prompt-paren",
        pattern=r"(?:prompt|request|input|inputs|tokens?|length|count|size|messages)(?: \((?:length |total length )?|\[)(?P<prompt>{N})",
    ),
    Figure(
        name="prompt-length",
        pattern=r"(?:input|prompt|request|sequence)[ _]?(?:token )?(?:length|tokens|count|size)(?:,? (?:of|is|was))? (?P<prompt>{N})",
    ),
    Figure(name="prompt-equals", pattern=r"(?:prompt(?:_tokens)?|got) ?= ?(?P<prompt>{N})"),
    Figure(name="prompt-long", pattern=r"(?:too long|too large):? \(?(?P<prompt>{N})(?: (?:input |prompt )?tokens?|,)"),
    Figure(
        name="limit-prompt",
        pattern=r"max(?:imum)? (?:allowed )?(?:prompt|input) (?:length|tokens?|size){G}(?P<limit>{N})",
    ),
    Figure(
        name="limit-input",
        pattern=r"(?:input|prompt) token(?:s| count)\b[^.]{0,40}?(?:limit of|limit is|number of tokens(?: allowed)?|supports up to){G}(?P<limit>{N})",
    ),
    Figure(name="window-of-model", pattern=r"maximum context length of \S{1,80} is (?P<window>{N})"),
    Figure(
        name="window-named",
        pattern=r"(?:context[ _-]?(?:window|length|size|limit)|n_ctx|num_ctx|max_(?:model|seq|sequence)_len(?:gth)?|max(?:imum)? (?:model |supported |sequence |total |context ){0,3}(?:length|sequence)){G}(?P<window>{N})",
    ),
    Figure(name="window-before", pattern=r"(?:model with|than) (?P<window>{N}) maximum context"),
    Figure(
        name="window-token-limit",
        pattern=r"(?:model token limit|while limit is|max size|tokens? cannot exceed|cannot exceed)(?:[: ]|of|is){1,3}(?P<window>{N})",
    ),
    Figure(name="window-limit-of", pattern=r"(?:exceeds?|over|above)(?: the)? (?:\w+ )?limit of (?P<window>{N})"),
    Figure(name="window-max-tokens", pattern=r"^\W*max tokens of (?P<window>{N}) exceeded"),
    Figure(
        name="window-max",
        pattern=r"(?:,|but) (?:the )?max(?:imum)?(?: (?:is|allowed|tokens?|of)){0,3}:? (?P<window>{N})",
    ),
)

FIELDS: dict[str, str] = {
    # llama.cpp, ds4 and others state the counts beside the message.
    "n_prompt_tokens": "prompt",
    "prompt_tokens": "prompt",
    "input_tokens": "prompt",
    "requested_tokens": "total",
    "n_ctx": "window",
    "context_window": "window",
    "context_length": "window",
    "max_context_length": "window",
    "max_model_len": "window",
    "max_input_tokens": "limit",
    "max_prompt_tokens": "limit",
}

FINGERPRINTS: tuple[Fingerprint, ...] = (
    Fingerprint(provider="openrouter", pattern=r"this endpoint's maximum context length|openrouter"),
    Fingerprint(
        provider="bedrock", pattern=r"input is too long for requested model|when calling the \w+ operation|bedrock"
    ),
    Fingerprint(provider="anthropic", pattern=r"prompt is too long: \d+ tokens > \d+ maximum|anthropic"),
    Fingerprint(
        provider="gemini", pattern=r"input token count .{0,20}exceeds the maximum number of tokens|gemini|vertex"
    ),
    Fingerprint(provider="xai", pattern=r"maximum prompt length is \d+ but|\bx\.?ai\b|\bgrok\b"),
    Fingerprint(
        provider="copilot", pattern=r"prompt token count of \d+ exceeds|capierror|model_max_prompt_tokens_exceeded"
    ),
    Fingerprint(provider="llama.cpp", pattern=r"exceeds the available context size|exceed_context_size_error"),
    Fingerprint(provider="lmstudio", pattern=r"tokens to keep from the initial prompt"),
    Fingerprint(
        provider="mistral",
        pattern=r"draft tokens, too large for model|prompt \d+ > \d+ maximum context|invalid_request_prompt_too_long",
    ),
    Fingerprint(provider="vllm", pattern=r"parameter=(?:input|max)_tokens|max_model_len|prompt contains at least|vllm"),
    Fingerprint(provider="moonshot", pattern=r"exceeded model token limit"),
    Fingerprint(provider="cerebras", pattern=r"current length is \d+ while limit is|cerebras"),
    Fingerprint(provider="siliconflow", pattern=r"length of prompt_tokens \(|max_prompt_tokens \(\d+\) limit"),
    Fingerprint(provider="groq", pattern=r"\bgroq\b"),
    Fingerprint(
        provider="cohere", pattern=r"cohere|total number of tokens (?:in the prompt|\(prompt and prediction\))"
    ),
    Fingerprint(provider="kiro", pattern=r"content_length_exceeds_threshold|codewhisperer"),
    Fingerprint(
        provider="openai",
        pattern=r"however, (?:you requested|your messages resulted in) \d+ tokens|exceeds the context window of this model|exceed the configured limit|openai\.com",
    ),
)

HEADERS: dict[str, str] = {
    # A response header that names its maker; checked only where the wording does not.
    "anthropic-organization-id": "anthropic",
    "openai-organization": "openai",
    "openai-version": "openai",
    "x-groq-region": "groq",
    "x-amzn-requestid": "bedrock",
    "apim-request-id": "azure",
    "x-dashscope-call-gateway": "dashscope",
    "x-litellm-version": "litellm",
    "x-ds-trace-id": "deepseek",
}
