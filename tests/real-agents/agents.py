"""The agents: what to install, how to start each without a terminal, and what it needs to know.

The values are data. A command, a file or a variable may have these words in braces: {port} is the
port of the stub model, {home} the empty home folder, {prompt} the task. A file that is an object
is written as JSON. `server` gives the entry of the MCP server from an address or a command.
"""

from dataclasses import dataclass, field
from typing import Callable

SERVER = "riglm"
KEY = "dummy-key"


@dataclass
class Agent:
    package: str
    version: str
    program: str
    command: list
    files: Callable
    environment: dict = field(default_factory=dict)
    # What the agent names itself in its `initialize`, measured.
    client_name: str = ""
    # Whether the agent loads tools with a search of its own. It then has riglm's tools by name, and
    # may call a tool that it has by name without `call_tool`.
    on_demand: bool = False
    # Seconds after which a run is ended.
    limit: int = 120


def plain(server, url_type=None):
    """The form that most clients share."""
    if isinstance(server, str):
        return {"url": server} | ({"type": url_type} if url_type else {})
    return {"command": server[0], "args": server[1:]}


def claude_code(server):
    return {"mcp.json": {"mcpServers": {SERVER: plain(server, "http")}}}


def codex(server):
    if isinstance(server, str):
        entry = f'url = "{server}"'
    else:
        words = ", ".join(f'"{word}"' for word in server[1:])
        entry = f'command = "{server[0]}"\nargs = [{words}]'
    text = f"""\
model = "stub"
model_provider = "stub"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.stub]
name = "stub"
base_url = "http://127.0.0.1:{{port}}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
[mcp_servers.{SERVER}]
{entry}
"""
    return {".codex/config.toml": text}


def gemini(server):
    entry = {"httpUrl": server} if isinstance(server, str) else plain(server)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "mcpServers": {SERVER: {**entry, "trust": True}},
    }
    return {".gemini/settings.json": settings}


def qwen(server):
    entry = {"httpUrl": server} if isinstance(server, str) else plain(server)
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "mcpServers": {SERVER: {**entry, "trust": True}},
    }
    return {".qwen/settings.json": settings}


def opencode(path):
    """opencode, and kilo, which is made of it."""

    def files(server):
        entry = {"type": "remote", "url": server}
        if not isinstance(server, str):
            entry = {"type": "local", "command": server}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "stub",
            "options": {"baseURL": "http://127.0.0.1:{port}/v1", "apiKey": KEY},
            "models": {"stub": {"name": "stub", "tool_call": True}},
        }
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": "stub/stub",
            "small_model": "stub/stub",
            "provider": {"stub": provider},
            "permission": "allow",
            "mcp": {SERVER: {**entry, "enabled": True}},
        }
        return {path: settings}

    return files


def copilot(server):
    entry = plain(server, "http")
    entry.setdefault("type", "local")
    return {".copilot/mcp-config.json": {"mcpServers": {SERVER: {**entry, "tools": ["*"]}}}}


def cline(server):
    entry = {"type": "streamableHttp", "url": server}
    if not isinstance(server, str):
        entry = {"type": "stdio", **plain(server)}
    provider = {"provider": "openai-compatible", "apiKey": KEY, "model": "stub"}
    provider["baseUrl"] = "http://127.0.0.1:{port}/v1"
    settings = {"settings": provider, "updatedAt": "2026-01-01T00:00:00.000Z"}
    settings["tokenSource"] = "manual"
    return {
        ".cline/data/settings/cline_mcp_settings.json": {"mcpServers": {SERVER: entry}},
        ".cline/data/settings/providers.json": {
            "version": 1,
            "lastUsedProvider": "openai-compatible",
            "modes": {},
            "providers": {"openai-compatible": settings},
        },
    }


def continue_cli(server):
    entry = {"type": "streamable-http", "url": server}
    if not isinstance(server, str):
        entry = plain(server)
    model = {"name": "stub", "provider": "openai", "model": "stub", "apiKey": KEY}
    model |= {"apiBase": "http://127.0.0.1:{port}/v1", "roles": ["chat"]}
    model["capabilities"] = ["tool_use"]
    # JSON is YAML.
    settings = {"name": "stub", "version": "1.0.0", "schema": "v1", "models": [model]}
    settings["mcpServers"] = [{"name": SERVER, **entry}]
    return {".continue/config.yaml": settings}


AGENTS = {
    "claude-code": Agent(
        package="@anthropic-ai/claude-code",
        version="2.1.328",
        program="claude",
        command=[
            *("-p", "{prompt}", "--model", "claude-sonnet-4-5", "--mcp-config", "{home}/mcp.json"),
            *("--strict-mcp-config", "--allowedTools", f"mcp__{SERVER}"),
        ],
        files=claude_code,
        environment={
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:{port}",
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Loads tools on demand only with the provider's own address otherwise.
            "ENABLE_TOOL_SEARCH": "true",
        },
        client_name="claude-code",
        on_demand=True,
    ),
    "codex": Agent(
        package="@openai/codex",
        version="0.169.0",
        program="codex",
        command=[
            *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
            "{prompt}",
        ],
        files=codex,
        client_name="codex-mcp-client",
        environment={"STUB_KEY": KEY},
    ),
    "gemini-cli": Agent(
        package="@google/gemini-cli",
        version="0.61.0",
        program="gemini",
        command=["-p", "{prompt}", "--yolo", "-m", "gemini-2.5-pro"],
        files=gemini,
        client_name="gemini-cli-mcp-client",
        environment={
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:{port}",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
    ),
    "opencode": Agent(
        package="opencode-ai",
        version="1.18.33",
        program="opencode",
        command=["run", "{prompt}"],
        files=opencode(".config/opencode/opencode.json"),
        client_name="opencode",
        environment={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
    ),
    "qwen-code": Agent(
        package="@qwen-code/qwen-code",
        version="0.24.4",
        program="qwen",
        command=["-p", "{prompt}", "--yolo", "--auth-type", "openai"],
        files=qwen,
        client_name="qwen-cli-mcp-client-riglm",
        environment={
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": "http://127.0.0.1:{port}/v1",
            "OPENAI_MODEL": "stub",
        },
        on_demand=True,
    ),
    "copilot": Agent(
        package="@github/copilot",
        version="1.0.102",
        program="copilot",
        command=["-p", "{prompt}", "--allow-all-tools", "--no-auto-update"],
        files=copilot,
        client_name="copilot-cli",
        environment={
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:{port}/v1",
            "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_MODEL": "stub",
        },
    ),
    "cline": Agent(
        package="cline",
        version="3.0.65",
        program="cline",
        command=["-P", "openai-compatible", "-m", "stub", "--auto-approve", "true", "{prompt}"],
        files=cline,
        client_name="@cline/core",
        environment={"CLINE_NO_AUTO_UPDATE": "1"},
    ),
    "continue": Agent(
        package="@continuedev/cli",
        version="1.5.47",
        program="cn",
        command=["-p", "{prompt}", "--auto", "--config", "{home}/.continue/config.yaml"],
        files=continue_cli,
        client_name="continue-cli-client",
        environment={"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_AUTO_UPDATED": "1"},
    ),
    "kilo": Agent(
        package="@kilocode/cli",
        version="7.7.7",
        program="kilo",
        command=["run", "--auto", "{prompt}"],
        files=opencode(".config/kilo/kilo.json"),
        client_name="kilo",
        environment={
            "KILO_DISABLE_AUTOUPDATE": "1",
            "KILO_DISABLE_MODELS_FETCH": "1",
            "KILO_TELEMETRY_LEVEL": "off",
        },
    ),
}
