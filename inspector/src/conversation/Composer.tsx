import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState, type ClipboardEvent, type KeyboardEvent } from "react";
import type { ContentBlock } from "sandbox-agent";
import { useShortcut } from "../app/shortcuts.js";
import { Button, IconButton } from "../kit/controls.js";
import { Icon } from "../kit/icons.js";
import { toasts } from "../state/page.js";
import { useStore } from "../state/store.js";
import { nameOf, type Attached } from "./attachments.js";
import { maxQueue, type ConfigOption, type Conversation } from "./conversation.js";
import { Meter } from "./Meter.js";

/** Where a prompt is written: text, files, commands of the agent, and what the session is set to. */
export function Composer({ conversation, attached }: { conversation: Conversation; attached: Attached }) {
  const attachments = attached.all;
  const state = useStore(conversation);
  const [text, setText] = useState(conversation.draft.text);
  const [picked, setPicked] = useState(0);
  const [closed, setClosed] = useState(false); // the list of commands
  const area = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const listId = useId();

  useEffect(() => {
    conversation.draft = { text, attachments };
  }, [conversation, text, attachments]);
  useEffect(() => {
    if (!conversation.begun || matchMedia("(pointer: coarse)").matches) return;
    conversation.begun = false;
    area.current?.focus();
  }, [conversation]);
  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, 260)}px`;
  }, [text]);
  useShortcut({ keys: "i", what: "Write to the agent", group: "Conversation", run: () => area.current?.focus() });
  useShortcut({ keys: "Escape", what: "Leave the text, then stop the turn", group: "Conversation", run: () => state.running && void stop() });

  const word = /^\/(\S*)$/.exec(text)?.[1];
  const commands = useMemo(() => (word === undefined ? [] : state.commands.filter((c) => c.name.toLowerCase().startsWith(word.toLowerCase())).slice(0, 50)), [word, state.commands]);
  const listed = !closed && commands.length > 0 && !(commands.length === 1 && commands[0]!.name === word && !commands[0]!.hint);
  const at = Math.min(picked, commands.length - 1);

  const stop = () => toasts.attempt("It could not be stopped", () => conversation.stop());
  const submit = () => {
    const trimmed = text.trim();
    if (trimmed === "" && attachments.length === 0) return;
    const blocks: ContentBlock[] = [...attachments, ...(trimmed === "" ? [] : [{ type: "text" as const, text: trimmed }])];
    if (!conversation.send(blocks)) return toasts.show(`At most ${maxQueue} prompts wait for a turn`, "bad");
    setText("");
    attached.set([]);
  };
  const complete = (name: string) => {
    setText(`/${name} `);
    setPicked(0);
    area.current?.focus();
  };

  const onKey = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.nativeEvent.isComposing) return;
    if (listed) {
      const move = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
      if (move !== 0) {
        event.preventDefault();
        return setPicked((at + move + commands.length) % commands.length);
      }
      if (event.key === "Tab" || (event.key === "Enter" && commands[at]!.name !== word)) {
        event.preventDefault();
        return complete(commands[at]!.name);
      }
      if (event.key === "Escape") {
        event.preventDefault();
        return setClosed(true);
      }
    }
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
    attached.add(event.clipboardData.files);
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
        <ul className="commands" role="listbox" id={listId} aria-label="Commands of the agent">
          {commands.map((c, i) => (
            <li
              key={c.name} role="option" id={`${listId}-${i}`} aria-selected={i === at} ref={(el) => void (i === at && el?.scrollIntoView({ block: "nearest" }))}
              onMouseDown={(event) => {
                event.preventDefault();
                complete(c.name);
              }}
            >
              <span className="mono">/{c.name}{c.hint && <span className="soft"> {c.hint}</span>}</span>
              <span className="soft small">{c.description}</span>
            </li>
          ))}
        </ul>
      )}
      {attachments.length > 0 && (
        <ul className="attachments" aria-label="Attachments">
          {attachments.map((block, i) => (
            <li key={i}>
              {block.type === "image" ? <img src={`data:${block.mimeType};base64,${block.data}`} alt={nameOf(block)} /> : <span className="chip"><Icon name="files" size={14} /> {nameOf(block)}</span>}
              <IconButton label={`Remove ${nameOf(block)}`} icon="close" size={12} onClick={() => attached.set(attachments.filter((_, k) => k !== i))} />
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={area} rows={1} value={text} placeholder={state.running ? "Write the next prompt" : "Write to the agent"} aria-label="Prompt"
        aria-haspopup="listbox" aria-controls={listed ? listId : undefined} aria-autocomplete="list" aria-activedescendant={listed ? `${listId}-${at}` : undefined}
        onChange={(event) => {
          setText(event.target.value);
          setClosed(false);
          setPicked(0);
        }}
        onKeyDown={onKey} onPaste={onPaste}
      />
      <div className="composer-foot">
        <input
          ref={files} type="file" multiple hidden
          onChange={(event) => {
            attached.add(event.target.files ?? []);
            event.target.value = "";
          }}
        />
        <IconButton label="Attach files" icon="clip" onClick={() => files.current?.click()} />
        <Options conversation={conversation} options={state.options} />
        <span className="grow" />
        <Meter usage={state.usage} />
        {state.running && <Button small icon="stop" tone="danger" busy={state.stopping} onClick={() => void stop()}>{state.stopping ? "Stopping" : "Stop"}</Button>}
        <Button type="submit" tone="primary" small icon="send" disabled={!canSend}>{state.running || state.queue.length > 0 ? "Queue" : "Send"}</Button>
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
