import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState, type ClipboardEvent, type KeyboardEvent } from "react";
import type { ContentBlock } from "sandbox-agent";
import { useShortcut } from "../app/shortcuts.js";
import { Button, IconButton } from "../kit/controls.js";
import { Icon } from "../kit/icons.js";
import { toasts } from "../state/page.js";
import { useStore } from "../state/store.js";
import { nameOf } from "./attachments.js";
import { maxQueue, type Conversation } from "./conversation.js";
import type { ConfigOption } from "./options.js";
import { useDraft } from "./draft.js";
import { linksIn, mentionAt, useFiles } from "./mentions.js";
import { Meter } from "./Meter.js";

/** Something that completes what is being written. */
interface Proposal {
  readonly id: string;
  readonly mark: string;
  readonly hint?: string | undefined;
  readonly about: string;
  take(): void;
}

/** Where a prompt is written: text, files, commands of the agent, and what the session is set to. */
export function Composer({ conversation, attach }: { conversation: Conversation; /** Reads files, to go along. */ attach: (files: Iterable<File>) => void }) {
  const state = useStore(conversation);
  const { text, attachments } = useDraft(conversation);
  const setText = (text: string) => void (conversation.draft = { ...conversation.draft, text });
  const [picked, setPicked] = useState(0);
  const [closed, setClosed] = useState(false); // the list of proposals
  const [caret, setCaret] = useState(0);
  const chosen = useRef(new Set<string>()); // files that were chosen by @
  const recalled = useRef(-1); // of the prompts before, from the newest; -1 is what is being written
  const area = useRef<HTMLTextAreaElement>(null);
  const [begun] = useState(text); // the browser has what follows: were each letter put into it once more, it could not undo words
  const files = useRef<HTMLInputElement>(null);
  const listId = useId();

  useEffect(() => {
    if (!conversation.begun || matchMedia("(pointer: coarse)").matches) return;
    conversation.begun = false;
    area.current?.focus();
  }, [conversation]);
  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return;
    if (element.value !== text) element.value = text;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, 260)}px`;
  }, [text]);
  useShortcut({ keys: "i", what: "Write to the agent", group: "Conversation", run: () => area.current?.focus() });
  useShortcut({ keys: "Escape", what: "Leave the text, then stop the turn", group: "Conversation", run: () => state.running && void stop() });

  const cwd = state.info?.cwd;
  const mention = mentionAt(text, caret);
  const found = useFiles(cwd, closed ? undefined : mention);
  const word = /^\/(\S*)$/.exec(text)?.[1];
  const commands = useMemo(() => (word === undefined ? [] : state.commands.filter((c) => c.name.toLowerCase().startsWith(word.toLowerCase())).slice(0, 50)), [word, state.commands]);
  const proposals: readonly Proposal[] = mention
    ? found.map((path) => ({ id: path, mark: `@${path}`, about: "", take: () => insert(mention, path) }))
    : commands.map((c) => ({ id: c.name, mark: `/${c.name}`, hint: c.hint, about: c.description, take: () => complete(c.name) }));
  const only = proposals.length === 1 ? proposals[0]! : undefined;
  const listed = !closed && proposals.length > 0 && !(only && !only.hint && only.id === (mention ? mention.path : word));
  const at = Math.min(picked, proposals.length - 1);

  const stop = () => toasts.attempt("It could not be stopped", () => conversation.stop());
  const submit = () => {
    const trimmed = text.trim();
    if (trimmed === "" && attachments.length === 0) return;
    const blocks: ContentBlock[] = [...attachments, ...linksIn(trimmed, chosen.current, cwd ?? "/"), ...(trimmed === "" ? [] : [{ type: "text" as const, text: trimmed }])];
    if (!conversation.send(blocks)) return void toasts.show(`At most ${maxQueue} prompts wait for a turn`, "bad");
    chosen.current.clear();
    write("", 0, text.length);
    conversation.draft = { ...conversation.draft, text: "", attachments: [] };
  };
  /** Puts words in the place of others, as if they were typed: then the browser can undo it, and what was typed before. */
  const write = (words: string, from: number, to: number) => {
    if (words === "" && from === to) return;
    area.current?.focus();
    area.current?.setSelectionRange(from, to);
    document.execCommand(words === "" ? "delete" : "insertText", false, words);
  };
  const insert = (where: { from: number; to: number }, path: string) => {
    const whole = !path.endsWith("/");
    if (whole) chosen.current.add(path);
    const put = `@${path}${whole ? " " : ""}`; // in a folder one goes on
    write(put, where.from, where.to);
  };
  /** Takes a prompt of before into the text, to be sent again or changed. */
  const recall = (direction: 1 | -1): boolean => {
    const prompts = [...new Set(conversation.rows.get().rows.flatMap((r) => (r.item.kind === "user" ? [r.item.blocks.flatMap((b) => (b.type === "text" ? [b.text] : [])).join("\n")] : [])).filter((p) => p !== "").reverse())];
    const next = recalled.current + direction;
    if (next < -1 || next >= prompts.length) return false;
    write(next < 0 ? "" : prompts[next]!, 0, text.length);
    recalled.current = next;
    setClosed(true);
    return true;
  };
  const complete = (name: string) => write(`/${name} `, 0, text.length);

  const onKey = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.nativeEvent.isComposing) return;
    if (listed) {
      const move = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
      if (move !== 0) {
        event.preventDefault();
        return setPicked((at + move + proposals.length) % proposals.length);
      }
      if (event.key === "Tab" || (event.key === "Enter" && (mention !== undefined || proposals[at]!.id !== word))) {
        event.preventDefault();
        return proposals[at]!.take();
      }
      if (event.key === "Escape") {
        event.preventDefault();
        return setClosed(true);
      }
    }
    // What is written is not lost: only an empty text, or one that was recalled and not changed, gives way.
    const plain = !event.altKey && !event.shiftKey && !event.ctrlKey && !event.metaKey;
    if (plain && event.key === "ArrowUp" && (text === "" || recalled.current >= 0) && area.current?.value.slice(0, area.current.selectionStart).includes("\n") === false && recall(1)) return event.preventDefault();
    if (plain && event.key === "ArrowDown" && recalled.current >= 0 && area.current?.value.slice(area.current.selectionEnd).includes("\n") === false && recall(-1)) return event.preventDefault();
    if (event.key === "Escape") {
      event.preventDefault();
      // Where keys scroll, and letters are shortcuts.
      area.current?.closest(".conversation")?.querySelector<HTMLElement>(".rows")?.focus();
    } else if (event.key === "Enter" && !event.shiftKey && !event.altKey && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      submit();
    }
  };
  const onPaste = (event: ClipboardEvent) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attach(event.clipboardData.files);
  };

  const canSend = text.trim() !== "" || attachments.length > 0;
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {listed && (
        <ul className="commands" role="listbox" id={listId} aria-label={mention ? "Files" : "Commands of the agent"}>
          {proposals.map((p, i) => (
            <li
              key={p.id} role="option" id={`${listId}-${i}`} aria-selected={i === at} ref={(el) => void (i === at && el?.scrollIntoView({ block: "nearest" }))}
              onMouseDown={(event) => {
                event.preventDefault();
                p.take();
              }}
            >
              <span className="mono">{p.mark}{p.hint && <span className="soft"> {p.hint}</span>}</span>
              <span className="soft small">{p.about}</span>
            </li>
          ))}
        </ul>
      )}
      {attachments.length > 0 && (
        <ul className="attachments" aria-label="Attachments">
          {attachments.map((block, i) => (
            <li key={i}>
              {block.type === "image" ? <img src={`data:${block.mimeType};base64,${block.data}`} alt={nameOf(block)} /> : <span className="chip"><Icon name="files" size={14} /> {nameOf(block)}</span>}
              <IconButton label={`Remove ${nameOf(block)}`} icon="close" size={12} onClick={() => void (conversation.draft = { ...conversation.draft, attachments: attachments.filter((_, k) => k !== i) })} />
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={area} rows={1} defaultValue={begun} placeholder={state.running ? "Write the next prompt" : "Write to the agent"} aria-label="Prompt"
        aria-haspopup="listbox" aria-controls={listed ? listId : undefined} aria-autocomplete="list" aria-activedescendant={listed ? `${listId}-${at}` : undefined}
        onChange={(event) => {
          setText(event.target.value);
          setCaret(event.target.selectionStart);
          recalled.current = -1;
          setClosed(false);
          setPicked(0);
        }}
        onSelect={(event) => setCaret(event.currentTarget.selectionStart)}
        onKeyDown={onKey} onPaste={onPaste}
      />
      <div className="composer-foot">
        <input
          ref={files} type="file" multiple hidden
          onChange={(event) => {
            attach(event.target.files ?? []);
            event.target.value = "";
          }}
        />
        <IconButton label="Attach files" icon="clip" onClick={() => files.current?.click()} />
        <Options conversation={conversation} options={state.options} />
        <span className="grow" />
        <Meter usage={state.usage} />
        {state.running && <Button small icon="stop" tone="danger" busy={state.stopping} onClick={() => void stop()}>{state.stopping ? "Stopping" : "Stop"}</Button>}
        <Button type="submit" tone="primary" small icon="send" disabled={!canSend}>{state.running || state.queue.length > 0 || state.problem !== undefined ? "Queue" : "Send"}</Button>
      </div>
    </form>
  );
}

/** Mode, model, thought level and what else the agent lets choose. */
function Options({ conversation, options }: { conversation: Conversation; options: readonly ConfigOption[] }) {
  const set = (option: ConfigOption, value: string | boolean) => void toasts.attempt(`${option.name} could not be set`, () => conversation.setOption(option, value));
  return (
    <>
      {options.map((option) =>
        typeof option.current === "boolean" ? (
          <label key={option.id} className="option-check" title={option.description}>
            <input type="checkbox" checked={option.current} onChange={(event) => set(option, event.target.checked)} /> {option.name}
          </label>
        ) : (
          <span key={option.id} className="option-select" title={option.choices.find((c) => c.value === option.current)?.description ?? option.description}>
            <select aria-label={option.name} value={option.current} onChange={(event) => set(option, event.target.value)}>
              {!option.choices.some((c) => c.value === option.current) && <option value={option.current}>{option.current}</option>}
              {option.choices.map((c) => <option key={c.value} value={c.value}>{c.name}</option>)}
            </select>
            <Icon name="down" size={12} />
          </span>
        ),
      )}
    </>
  );
}
