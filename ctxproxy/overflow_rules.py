"""The rules by which a provider's error is recognised: data only, read by `overflow`.

Three tables, each in order of precedence, the first match wins:

* `RULES` say what an error *is* (`says`), from a machine-readable code, from one sentence, or from the whole text.
  A rule without a `provider` describes a form that any provider may use; a rule with one is a quirk of that provider.
* `FIGURES` say where the numbers stand. Several apply to one text; each fills what the earlier ones left open.
* `FINGERPRINTS` name the provider by its wording. They never influence the class.

Patterns meet text that `overflow` has normalised: lower case, one kind of quote, no backticks, single spaces. They are
linear: gaps are atomic (`(?>.*?x)`: the first x, no way back) or short and bounded; an error body is untrusted input.
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
numbers decide, without numbers the prompt is. `room`: the same, but without numbers only the output is. `payload`:
bytes. `rate`: rate limit or quota. `other`: looks like one of these and is not."""


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
    numbers: bool = True  # False: the numbers in this text are no token counts
    final: bool = False  # True: what is quoted inside or beside this text does not count


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Where a number stands. Groups: window, limit (of the input), prompt, bound (a lower bound of the prompt), total,
    output, tpm, asked (tokens of a rate-limited request), chars, debt (how far the prompt exceeds the window)."""

    name: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A wording that only one provider or server uses."""

    provider: str
    pattern: str


_OF_PROMPT = r"(?:model|total|combined|input|prompt|context|sequence|token)"
_ADJ = rf"(?:(?:allowed|supported|permitted|message|text|number of|{_OF_PROMPT}) ){{0,4}}"
_LIMIT_ADJ = r"(?:(?:token|input|context|length|maximum|max|prompt) ){0,3}"

VOCABULARY: dict[str, str] = {
    # Digits with separators, or with k/m. Possessive, so that the unit check cannot be escaped by dropping a digit.
    "N": r"(?:\d{1,3}(?:[,_']\d{3})++|\d{1,12}+(?:\.\d{1,3})?+(?:[km]\b)?+)"
    r"(?!\d|\s?(?:char|byte|[kmg]i?b\b|pixel|page|image))",
    "S": r"(?<![a-z_])(?:prompt|inputs?|messages?|conversation|history|query|context)(?![a-z]|_(?!tokens|ids))",
    "T": r"(?<![a-z])(?:request(?:ed)?|tokens?|sequence length|total length)(?![a-z])",
    "O": r"(?:>|(?<![a-z])(?:exceed(?:s|ed|ing)?|overflow(?:s|ed)?|surpass(?:es|ed)?|too (?:long|large|big|many)"
    r"|(?:longer|larger|greater|bigger|more|higher) than|over the|above the|beyond|(?:not|n't|cannot) fit"
    r"|must (?:not exceed|be (?:less|smaller|shorter|fewer|lower|below|under|no more|at most)"
    r"|have (?:less|fewer|at most))"
    r"|only supports?|supports? (?:only|up to))(?![a-z]))",
    "C": r"(?:context[ _-]?(?:window|length|size|limit|len|budget|capacity)|n_ctx|num_ctx|model max(?:imum)? length"
    r"|(?:model's|available|maximum|max|supported) context"
    r"|max_(?:model|seq|sequence|context|position|input|prompt|total)_?[a-z_]{0,24}"
    rf"|max(?:imum)? {_ADJ}(?:tokens?|token count|{_OF_PROMPT} length|sequence)(?! per)"
    rf"|(?:model|tokens?|input|prompt|context|length|sequence)(?:'s)? {_LIMIT_ADJ}(?:limit|maximum|capacity))",
    # A count of prompt tokens, as a noun.
    "P": r"(?:(?:prompt|input|context|messages?|request|requested|query|total)[ _](?:input |prompt )?"
    r"(?:tokens?(?: count| length)?|lengths?)(?![a-z])"
    r"|tokens? (?:count )?(?:in|of|for) (?:the |your |this )?(?:prompt|input|request|messages?|context|conversation))",
    "OUT": r"max_?(?:new_?|completion_?|output_?)?tokens",
    # Words and signs that may stand between the name of a limit and its number.
    "G": r"(?:[\s:=(\[~']|is|was|are|of|only|just|at|set to|allowed|supported|tokens?|limit|size|length|about){0,9}",
    # Where a short sentence may begin: start, punctuation of a relay's prefix, "because"; then articles and the like.
    "A": r"(?:^|[:>|\])'\-,({=] ?|because )"
    r"(?:(?:error|the|this|your|a|an|total|current|user|chat|entire|model|sorry) ){0,4}",
}


# fmt: off
RULES: tuple[Rule, ...] = (
    # -- true overflows that a veto below would hide: bytes or characters of *text*, tokens called a body size
    Rule(name="text-bytes", says="overflow", provider="anthropic", on="text",
         source="Messages API: 9,000,000-byte cap on text; compaction cures it",
         pattern="too many total text bytes"),
    Rule(name="titan-max-length", says="overflow", provider="bedrock", on="text",
         source="Bedrock schema check of the prompt, in characters",
         pattern=r"expected max_?length: ?\d+, actual: ?\d+"),
    Rule(name="size-in-tokens", says="overflow", on="text", source="GitHub Models, HTTP 413",
         pattern="max(?:imum)? (?:request |body |prompt )?size(?: is|:| of)? {N} tokens"),
    Rule(name="vllm-characters", says="shared", provider="vllm", on="text",
         source="vLLM renderer: check before tokenization",
         pattern=r"upper bound for \d+ input tokens|prompt contains \d+ characters|passed \d+ input characters"),
    Rule(name="negative-max-tokens", says="overflow", provider="vllm",
         source="vLLM <= 0.6: default = window - prompt went negative",
         pattern=r"max_tokens must be at least 1, got -\d+"),
    Rule(name="vllm-max-tokens", says="shared", provider="vllm", on="text", source="vLLM >= 0.9",
         pattern=r"max_(?:completion_)?tokens'? is too large: ?{N}\. .{0,40}maximum context length"),
    # -- rate limits and quotas
    Rule(name="rate-code", says="rate", on="code", source="OpenAI, Anthropic, Google, AWS codes",
         pattern="(?:.*_)?rate_?limit(?:_|ed|error|exceeded|$).*|tokens|insufficient_quota|.*quota.*"
         r"|resource_?exhausted|too_many_requests|throttling\w*|overloaded_error|usage_limit\w*|usage_not_included"
         r"|billing\w*|payment_required"),
    Rule(name="rate-per-time", says="rate", on="text",
         source="TPM/RPM wording of OpenAI, Groq, Anthropic; OpenRouter key budgets",
         pattern=r"(?:per|this|each|every)[ -](?:min(?:ute)?|hour|day|second|month|week)\b|tokens?/min|\b(?:tpm|rpm"
         r"|tpd|rpd)\b|\b(?:monthly|daily|weekly|hourly)\b"),
    Rule(name="rate-words", says="rate", on="text", source="Bedrock 'Too many tokens, please wait'; generic",
         pattern="rate[ _-]?limit|too many requests|throttl|please wait|wait before|high demand|peak load|slow down"
         "|overloaded"),
    Rule(name="quota-words", says="rate", on="text", source="OpenAI, OpenRouter 402, Anthropic 429 for long context",
         pattern=r"\bquota\b|\bcredits?\b|insufficient (?:balance|funds)|billing|only afford|usage limit|enqueued"
         "|spend(?:ing)? limit|extra usage is required|your (?:per-model|plan|account|organi[sz]ation|project|team"
         r"|workspace)(?:'s)? \w* ?limit"),
    Rule(name="rate-cjk", says="rate", on="text", source="Chinese gateways",
         pattern="频繁|频率|限流|每分钟|并发|次数|配额|额度|余额|欠费|套餐"),
    # -- look-alikes: other limits, other errors
    Rule(name="string-length", says="other", on="text", numbers=False, source="OpenAI parameter validation",
         pattern="string[ _](?:too[ _]long|above[ _]max)|(?:expected a|a|the) string with (?:maximum )?length"
         "|array too long|array_above_max"),
    Rule(name="media-limit", says="other", on="text", source="Anthropic image, PDF limits",
         pattern=r"(?<!tokens of )(?<!\d )\b(?:image|audio|video|pdf|file|document"
         r"|attachment)s?\b[^.]{0,40}?(?:exceed|too (?:large|long|big|many)|larger than)(?![^.]{0,60}context)"
         r"|pdf pages|\bpixels\b"),
    Rule(name="output-cap", says="other", on="text", source="Anthropic, OpenAI, DashScope, Vertex, Volcengine, Bedrock",
         pattern="(?:maximum|allowed) number of output tokens|at most {N} (?:completion|output) tokens"
         r"|range of {OUT}\b|maxoutputtokens value|integer above maximum|maximum tokens you requested exceeds"
         "|{OUT} ?(?:参数|非法|超过|超出)|(?:output|completion) token limit|maximum value for {OUT}|budget_tokens"
         "|(?:thinking|reasoning) budget"),
    Rule(name="output-param", says="other", source="max_tokens against the model's output limit or another parameter",
         pattern=r"(?:(?<!\+ ){OUT}'?:? (?:value )?(?:must|should|can(?:not)?|is not|has to|needs to|exceeds"
         "|(?:is )?(?:too large|greater|above))|(?:completion|output|generated) (?:tokens"
         r"|length) (?:\w+ ){0,2}(?:exceeds?|(?:is|are) (?:too|larger|greater)))(?!.*(?:context|input tokens))"),
    Rule(name="unsupported-param", says="other", on="text", source="OpenAI",
         pattern="unsupported (?:parameter|value)|unknown parameter|unrecognized request argument"),
    Rule(name="echo", says="other", on="text",
         source="a parser's complaint quotes what was sent, or what the model wrote",
         pattern="failed to parse (?:tool|json|the json|input|arguments)|invalid json|not valid json|json ?decode"
         "|invalid value: |supported values are|unexpected token"),
    Rule(name="tool-pairing", says="other", on="text",
         source="Anthropic, OpenAI, MiniMax: often made by a bad compaction",
         pattern=r"tool_use ids?\b|tool_use_id|tool_call_ids?\b|role '?tool\b|no tool call found|tool id\b"
         "|tool_result blocks?"),
    Rule(name="memory", says="other", on="text", source="memory guards of local servers; SageMaker",
         pattern=r"\d ?gi?b\b|out of memory|gpu memory|\bvram\b|cpu capacity"),
    Rule(name="batch-limit", says="other", on="text", source="embedding batches: OpenAI, llama.cpp n_ubatch",
         pattern="{N} tokens per request|batch size|max_tokens_per_request|per batch"),
    Rule(name="too-small", says="other", on="text", source="Vertex context caching; clients that want a larger window",
         pattern="minimum token count|start caching|(?:context|window)[a-z ]{0,12} too (?:small|short)"),
    Rule(name="client-text", says="other", on="text", final=True,
         source="transformers, Go, Claude Code, Dify, diffusers, clients' own compaction",
         pattern=r"token indices sequence length|bufio\.scanner|file content \(|query or prefix prompt"
         "|max tokens supported is|(?:compaction|compacting|summari[sz]ation)[a-z ]{0,20} (?:failed|error)"
         r"|(?:failed|error|unable)[a-z ]{0,20} (?:compact|summari[sz])|^\W*warn(?:ing)?:"),
    Rule(name="characters", says="other", on="text", source="character caps of single fields",
         pattern=r"\d ?(?:characters|chars)\b|characters_too_long|字符"),
    # -- bytes
    Rule(name="byte-size", says="payload", on="text", source="HTTP servers, Gemini, Anthropic 413, Kimi",
         pattern=r"\d ?(?:bytes|ki?b|mi?b)\b|payload (?:size|too large)|(?:request|payload|content) entity too large"
         "|content too large|exceeds? the maximum (?:allowed )?size|(?:upload|buffer) limit|total message size"),
    Rule(name="string-value-length", says="payload", on="text", source="Jackson (DashScope), Bedrock body limit",
         pattern="string value length|member must have length less than"),
    # -- quirks of one provider
    Rule(name="anthropic-sum", says="room", provider="anthropic",
         source="Messages API: only when the prompt alone fits",
         pattern="input length and {OUT} exceed context limit"),
    Rule(name="tgi-sum", says="shared", provider="tgi", source="text-generation-inference router/validation.rs",
         pattern=r"inputs tokens \+ max_new_tokens must be <= ?{N}"),
    Rule(name="tgi-inputs", says="overflow", provider="tgi", source="text-generation-inference router/validation.rs",
         pattern="inputs must have less than {N} tokens"),
    Rule(name="minimax-window", says="overflow", provider="minimax", numbers=False,
         source="MiniMax; (2013) is its generic code, no number",
         pattern="invalid params, context window exceeds limit"),
    Rule(name="volc-message-tokens", says="overflow", provider="volcengine",
         source="Volcengine Ark; the meaning of its number is unknown",
         pattern="exceed max message tokens"),
    Rule(name="zhipu-1261", says="overflow", provider="zhipu", on="code", source="Zhipu / z.ai error table",
         pattern="1261"),
    Rule(name="ollama-delta", says="overflow", provider="ollama", source="Ollama: the number is the excess",
         pattern="exceeded (?:max )?context length by {N}"),
    Rule(name="sambanova-generation", says="shared", provider="sambanova", source="SambaNova 2024",
         pattern="requested generation length {N} is not possible"),
    Rule(name="snowflake-max-tokens", says="overflow", provider="snowflake", source="Snowflake Cortex",
         pattern=r"^\W*max tokens of {N} exceeded"),
    # -- the general form
    Rule(name="output-over-context", says="room", source="max_tokens is the subject of the sentence",
         pattern=r"{A}'?{OUT}\b.{0,40}?{O}.{0,40}?{C}"),
    Rule(name="sum-over-context", says="shared", source="prompt and output are both named",
         pattern=r"^(?=.*?(?:prompt|input|messages|context))(?>.*?(?:{OUT}\b|completion|output tokens|generat"
         "|prediction))(?>.*?{O}).*?(?:{C}|{N})"),
    Rule(name="prompt-over-context", says="overflow", source="several providers",
         pattern="^(?>.*?{S})(?>.*?{O}).*?{C}"),
    Rule(name="length-over-maximum", says="overflow", source="Zhipu, DashScope: a length without a unit",
         pattern="{A}(?:(?:length|size|number) of (?:the |your )?)?(?:prompt|inputs?|messages|conversation|context"
         r"|request)(?: (?:tokens?|text|length|size|content)){0,2}(?: ?[(\[]?{N}[)\]]?)?(?: (?:is|are|has"
         r"|have))? {O} (?:the )?max(?:imum)?[ _](?:\w+ )?(?:length|limit)"),
    Rule(name="request-over-context", says="shared", source="several providers",
         pattern="^(?>.*?{T})(?>.*?{O}).*?{C}"),
    Rule(name="count-over-limit", says="overflow", source="several providers",
         pattern="^(?>.*?{P})(?>.*?{O}).*?(?:limit|max|allowed|threshold|supported|{N})"),
    Rule(name="count-in-range", says="overflow", source="DashScope: input length should be [1, N]",
         pattern="{P}.{0,12}? (?:should|must) (?:be )?(?:(?:in|within|between|from|of|the"
         r"|range) ){0,4}[\[(]?\d+ ?(?:,|to|and|-) ?{N}"),
    Rule(name="over-context", says="overflow", source="shortened relays",
         pattern=r"(?:^|: )\W*exceed\w* (?:\w+ ){0,3}?{C}"),
    Rule(name="context-exceeded", says="shared", source="several providers",
         pattern=r"{A}(?:(?:maximum|max|model's|available|input|\w+'s) ){0,3}{C}s?[ :]*(?:(?:has|have|had|been|was"
         r"|were|is|are|already) ){0,3}(?:exceed|overflow|full\b|exhausted|reached|too (?:long|large))"),
    Rule(name="context-full", says="overflow", source="local servers",
         pattern="{A}(?:(?:is|ran|run|running) )?(?:out of context|no (?:more )?(?:space|room|tokens) (?:left"
         "|available|remaining) in (?:the )?context|context (?:is |was )?(?:full|exhausted|overflow|exceeded"
         "|too (?:long|large|big)))"),
    Rule(name="too-long", says="overflow", source="several providers",
         pattern="{A}(?:prompt|inputs?|conversation|messages|(?:message |chat )?history|context)(?: (?:text|prompt"
         r"|tokens?|length|messages|history)){0,2}(?: ?[(\[][^)\]]{0,40}[)\]])?(?: (?:is|are|was|were|has"
         "|have become))? (?:far |much |way )?too (?:long|large|big)"),
    Rule(name="too-many-tokens", says="overflow", source="several providers",
         pattern="too many (?:input|prompt|context|message|total) tokens|too many tokens(?: in| for"
         "|:.{0,40}exceeded by)"),
    Rule(name="too-long-cjk", says="overflow", on="text", source="Chinese, Japanese, Korean gateways",
         pattern="(?:上下文|输入|提示词|prompt|请求|消息|tokens?|对话|文本|内容)[^。，]{0,16}?(?:超过|超出|超长|过长|太长|大于|超限|溢出)"
         "|超[过出](?:了)?(?:模型)?(?:的)?(?:最大)?(?:上下文|输入|token)|(?:コンテキスト|プロンプト|入力|トークン)[^。、]{0,20}?(?:超え|超過|長すぎ)"
         "|(?:컨텍스트|프롬프트|입력|토큰).{0,20}?(?:초과|너무 [긴길깁])"),
    # -- codes
    Rule(name="context-code", says="shared", on="code",
         source="OpenAI (also where only max_tokens is wrong), llama.cpp, LiteLLM",
         pattern=r"\w*(?:context_?(?:length|window|size|limit)?_?(?:exceed|overflow|too_)|exceed\w*_?context"
         r"|out_?of_?context)\w*"),
    Rule(name="prompt-code", says="overflow", on="code", source="Mistral, Copilot, GitHub Models, Kiro, watsonx, xAI",
         pattern=r"\w*(?:(?:prompt|input|tokens?)_(?:is_)?too_(?:long|large|many)|prompt_?tokens?_?exceed"
         "|tokens?_limit_(?:reached|exceeded)|content_length_exceeds|token_quantity_exceeded|(?:input"
         r"|prompt)_(?:length|tokens?)_exceed|input_limit_exceeded)\w*"),
    # -- the numbers alone, then weak wording
    Rule(name="numbers", says="shared", on="figures", source="a window and a larger prompt or total are stated",
         pattern=""),
    Rule(name="reduce-length", says="shared", weak=True, source="Groq and others: nothing but the advice",
         pattern="(?:reduce|shorten|decrease)(?: the)? (?:(?:length|size|number) of (?:the |your "
         r"|tokens in the )?)?(?:your )?(?:input )?(?:messages\b|prompt\b|conversation|input length)"),
    Rule(name="limit-stated", says="shared", weak=True, source="Bedrock Llama, Fireworks: only the limit is stated",
         pattern="(?:max(?:imum)? (?:model |supported |allowed )?(?:context|prompt|input|sequence)|context"
         r"|model's? max\w*) ?(?:length|window|size|limit|tokens)(?: of \S{1,60})?(?: is|:| of|=)(?: only| just"
         "| about)?[ ~]*{N}"),
    # -- codes that a sentence may overrule
    Rule(name="payload-code", says="payload", on="code",
         source="Anthropic 413; a gateway may put a prompt sentence under this type",
         pattern="request_too_large|payload_too_large|request_entity_too_large|content_too_large"),
)

FIGURES: tuple[Figure, ...] = (
    Figure(name="rate-asked", pattern="limit:? (?P<tpm>{N})(?P<used>, used:? {N})?, requested:? (?P<asked>{N})"),
    Figure(name="sum-over", pattern=r"(?P<prompt>{N}) \+ (?P<output>{N}) ?(?:>|(?:is )?(?:greater|more"
           "|larger) than (?:max_seq_len )?)=? ?(?P<window>{N})"),
    Figure(name="keep", pattern="n_keep: ?(?P<prompt>{N})"),
    Figure(name="tokens-over", pattern=r"(?P<prompt>{N}) (?:input |prompt )?tokens?\)? ?(?:is |are )?(?:>"
           r"|exceeds?(?: the)? limit of|over the limit of|(?:larger|longer|greater|more) than[^\d.]{0,40}?)[ (]*"
           "(?P<window>{N})"),
    Figure(name="prompt-over", pattern="prompt(?: tokens limit exceeded:)? (?P<prompt>{N}) ?> ?(?P<window>{N})"),
    Figure(name="range", pattern="{P}.{0,12}? (?:should|must) (?:be )?(?:(?:in|within|between|from|of|the"
           r"|range) ){0,4}[\[(]?\d+ ?(?:,|to|and|-) ?(?P<limit>{N})"),
    Figure(name="sum-limit", pattern=r"max_new_tokens must be <= ?(?P<window>{N})(?:\. given: "
           "(?P<prompt>{N}) '?inputs'? ?tokens and (?P<output>{N}))?"),
    Figure(name="inputs-limit", pattern=r"must have less than (?P<limit>{N}) tokens\. given: (?P<prompt>{N})"),
    Figure(name="passed", pattern="you passed (?P<bound>{N}) input tokens and requested"),
    Figure(name="at-least", pattern="(?:contains|has) at least (?P<bound>{N}) (?:input |prompt )?tokens"),
    Figure(name="generation", pattern="so generating (?P<output>{N}) tokens"),
    Figure(name="chars", pattern=r"(?:contains|passed) (?P<chars>\d+) (?:input )?characters"),
    Figure(name="debt", pattern=r"at least 1, got -(?P<debt>\d+)"),
    Figure(name="output-requested", pattern="requested (?:about |up to |~)?(?P<output>{N}) (?:output"
           "|completion) tokens"),
    Figure(name="output-part", pattern="(?P<output>{N}) (?:tokens? )?(?:in|for|of) (?:the |your )?(?:completion"
           r"|output|generation|response)\b"),
    Figure(name="output-named", pattern="{OUT} ?[(=] ?(?P<output>{N})"),
    Figure(name="output-plus", pattern=r"\+ (?P<output>{N}) (?:output|completion)\b"),
    Figure(name="output-of", pattern="(?:output|completion) (?:length )?of (?P<output>{N}) tokens"),
    Figure(name="output-cap", pattern="(?:max_tokens: ?|max(?:_completion_)?_?tokens'? is too large: ?"
           "|maxoutputtokens value of )(?P<output>{N})(?! *>= )"),
    Figure(name="output-got", pattern="expected a value <= ?{N}, but got (?P<output>{N})"),
    Figure(name="output-up-to", pattern="requested up to (?P<output>{N}) tokens"),
    Figure(name="prompt-part", pattern="(?P<prompt>{N}) (?:tokens? )?(?:in|from|of) (?:the "
           r"|your )?(?:input )?(?:messages|prompt|text input|input messages)\b"),
    Figure(name="total-requested", pattern="requested (?:a total of |about |approximately |~)?"
           "(?P<total>{N})(?: tokens|, max)"),
    Figure(name="total-paren", pattern=r"(?:\(requested: ?|(?:output|total|combined) tokens \()(?P<total>{N})\)"),
    Figure(name="total-take", pattern="will take (?P<total>{N}) tokens"),
    Figure(name="total-current", pattern="current length is (?P<total>{N})"),
    Figure(name="total-received", pattern=r"\breceived (?P<total>{N})"),
    Figure(name="total-count", pattern="total (?:token count|tokens?)(?: count)?(?: is| of|:) (?P<total>{N})"),
    Figure(name="resulted", pattern="resulted in (?P<prompt>{N}) tokens"),
    Figure(name="prompt-given", pattern="(?:provided|sent|passed|received|got|given|contains?) "
           "(?P<prompt>{N}) ?(?:input |prompt )?tokens"),
    Figure(name="prompt-has", pattern=r"(?:prompt|request|input|messages?)(?: \w+)? (?:contains?|has|have|is"
           "|was) ?(?:about |approximately |~)?(?P<prompt>{N}) ?(?:input |prompt )?tokens?"),
    Figure(name="prompt-paren", pattern="(?<![a-z_])(?<!max )(?<!imum )(?<!allowed )(?:prompt|request|inputs?"
           "|messages|prompt_tokens|(?:input|prompt|requested|request|number of|of|input_ids) (?:tokens?|length"
           r"|count|token count|size)) ?(?:\((?:length |total length )?|\[)(?P<prompt>{N})"),
    Figure(name="prompt-length", pattern="(?<![a-z_])(?<!max )(?<!imum )(?<!allowed )(?:input|prompt|request"
           "|sequence)[ _]?(?:token )?(?:length|tokens|count|size)(?:,? (?:of|is|was)|:)? (?P<prompt>{N})"),
    Figure(name="prompt-equals", pattern="(?:prompt(?:_tokens)?|got)'? ?[=:] ?(?P<prompt>{N})"),
    Figure(name="prompt-long", pattern=r"(?:too long|too large):? \(?(?P<prompt>{N})(?: (?:input |prompt )?tokens?"
           "|,)"),
    Figure(name="limit-prompt", pattern="max(?:imum)?[ _](?:allowed )?(?:prompt|input)[ _](?:length|tokens?|size"
           "|len){G}(?P<limit>{N})"),
    Figure(name="limit-input", pattern=r"(?:input|prompt) token(?:s| count)\b[^.]{0,40}?(?:limit of|limit is"
           "|number of tokens(?: allowed)?|supports up to){G}(?P<limit>{N})"),
    Figure(name="window-of-model", pattern=r"maximum context length of \S{1,80} is (?P<window>{N})"),
    Figure(name="window-named", pattern="(?:context[ _-]?(?:window|length|size|limit)|n_ctx|num_ctx|tokens? limit"
           "|max_(?:model|seq|sequence|total)_(?:len|length|tokens)|max(?:imum)? (?:model |supported |allowed "
           "|sequence |total |context |token ){0,3}(?:length|sequence|token size)){G}"
           "(?P<window>{N})(?! tokens? (?:requested|used|given|sent|in))"),
    Figure(name="window-before", pattern="(?:model with|than) (?P<window>{N}) maximum context"),
    Figure(name="window-token-limit", pattern="(?:model token limit|while limit is|max size|tokens? cannot exceed"
           "|cannot exceed)(?:[: ]|of|is){1,3}(?P<window>{N})"),
    Figure(name="window-over", pattern="(?:exceeds|over) the (?P<window>{N})"),
    Figure(name="window-max-tokens", pattern=r"^\W*max tokens of (?P<window>{N}) exceeded"),
    Figure(name="window-max", pattern=r"(?:, |but |exceed |\()(?:the )?max(?:imum)?(?: (?:is|allowed|tokens?"
           "|of)){0,3}:? ?[(]?(?P<window>{N})"),
    Figure(name="window-accepts", pattern="(?:accepts?|allows?|handles?|supports?|takes?) (?:(?:only|at most|up to"
           "|a maximum of) ){1,2}(?P<window>{N})"),
    Figure(name="window-context-of", pattern="context of (?P<window>{N})"),
    Figure(name="window-limit", pattern="(?:limit|model maximum)(?: (?:of|for) (?:the|this"
           r"|your) (?:\w+ ){0,2}model)?{G}(?P<window>{N})"),
)

FINGERPRINTS: tuple[Fingerprint, ...] = (
    Fingerprint(provider="openrouter", pattern="this endpoint's maximum context length|openrouter"),
    Fingerprint(provider="bedrock", pattern=r"input is too long for requested model|when calling the \w+ operation"
                "|bedrock"),
    Fingerprint(provider="anthropic", pattern=r"prompt is too long: \d+ tokens > \d+ maximum|anthropic"),
    Fingerprint(provider="gemini", pattern="input token count .{0,20}exceeds the maximum number of tokens|gemini"
                "|vertex"),
    Fingerprint(provider="xai", pattern=r"maximum prompt length is \d+ but|\bx\.?ai\b|\bgrok\b"),
    Fingerprint(provider="copilot", pattern=r"prompt token count of \d+ exceeds|capierror"
                "|model_max_prompt_tokens_exceeded"),
    Fingerprint(provider="llama.cpp", pattern="exceeds the available context size|exceed_context_size_error"),
    Fingerprint(provider="lmstudio", pattern="tokens to keep from the initial prompt"),
    Fingerprint(provider="mistral", pattern=r"draft tokens, too large for model|prompt \d+ > \d+ maximum context"
                "|invalid_request_prompt_too_long"),
    Fingerprint(provider="vllm", pattern="parameter=(?:input|max)_tokens|max_model_len|prompt contains at least"
                "|vllm"),
    Fingerprint(provider="moonshot", pattern="exceeded model token limit"),
    Fingerprint(provider="cerebras", pattern=r"current length is \d+ while limit is|cerebras"),
    Fingerprint(provider="siliconflow", pattern=r"length of prompt_tokens \(|max_prompt_tokens \(\d+\) limit"),
    Fingerprint(provider="groq", pattern=r"\bgroq\b"),
    Fingerprint(provider="cohere", pattern="cohere|total number of tokens (?:in the prompt"
                r"|\(prompt and prediction\))"),
    Fingerprint(provider="kiro", pattern="content_length_exceeds_threshold|codewhisperer"),
    Fingerprint(provider="openai", pattern=r"however, (?:you requested|your messages resulted in) \d+ tokens"
                r"|exceeds the context window of this model|exceed the configured limit|openai\.com"),
)

FIELDS: dict[str, str] = {  # token counts that llama.cpp, ds4 and others state beside the message
    "n_prompt_tokens": "prompt", "prompt_tokens": "prompt", "input_tokens": "prompt", "requested_tokens": "total",
    "n_ctx": "window", "context_window": "window", "context_length": "window", "max_context_length": "window",
    "max_model_len": "window", "max_input_tokens": "limit", "max_prompt_tokens": "limit",
}

HEADERS: dict[str, str] = {  # response headers that name their maker; asked only where the wording does not tell
    "anthropic-organization-id": "anthropic", "openai-organization": "openai", "openai-version": "openai",
    "x-groq-region": "groq", "x-amzn-requestid": "bedrock", "apim-request-id": "azure", "x-litellm-version": "litellm",
    "x-dashscope-call-gateway": "dashscope", "x-ds-trace-id": "deepseek",
}
# fmt: on
