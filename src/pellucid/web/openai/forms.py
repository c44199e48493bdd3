"""The forms that a text may be asked to have: JSON, by a schema or of any kind, or a text of a grammar.

They are those of OpenAI's API, and `grammar`, which it has for tools alone.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from pellucid.web.openai.body import Body

Source = tuple[Literal["schema", "rules", "lark", "regex"], Any]  # what is written in which notation


class AnyText(Body):
    type: Literal["text"]
    source: None = None


class JsonObject(Body):
    type: Literal["json_object"]

    @property
    def source(self) -> Source:
        return "schema", {"type": "object"}


class Schema(Body):
    """A JSON schema with its name, which nobody reads here. It is always kept to, strict or not."""

    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    schema_: dict[str, Any] = Field(alias="schema")

    @property
    def source(self) -> Source:
        return "schema", self.schema_


class JsonSchema(Body):
    type: Literal["json_schema"]
    json_schema: Schema

    @property
    def source(self) -> Source:
        return self.json_schema.source


class FlatJsonSchema(Schema):
    """In /v1/responses, without a level between."""

    type: Literal["json_schema"]


class GrammarText(Body):
    """rules: in the notation of docs/languages.md."""

    type: Literal["grammar"]
    syntax: Literal["rules", "lark", "regex"]
    definition: Annotated[str, Field(min_length=1)]

    @property
    def source(self) -> Source:
        return self.syntax, self.definition


AskedForm = Annotated[AnyText | JsonObject | JsonSchema | GrammarText, Field(discriminator="type")]
AskedFormOfText = Annotated[AnyText | JsonObject | FlatJsonSchema | GrammarText, Field(discriminator="type")]
