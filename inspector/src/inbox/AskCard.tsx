import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { Button, Checkbox, Field, Input, Select, TextArea } from "../kit/controls.js";
import { Icon } from "../kit/icons.js";
import { Kbd } from "../kit/show.js";
import { plural, relativeTo } from "../kit/text.js";
import { Change, Diff } from "../conversation/Diff.js";
import { Markdown } from "../conversation/Markdown.js";
import { Code } from "../conversation/Code.js";
import { contentsOf } from "../conversation/updates.js";
import { placeOf, type Ask } from "../state/inbox.js";
import { useShortcut } from "../app/shortcuts.js";
import { useTyping } from "../app/typing.js";
import { forms, settings } from "../state/page.js";
import { useSelected } from "../state/store.js";
import { useForm } from "../state/unsent.js";
import { useCalm, type Calm } from "./calm.js";
import { emptyForm, fieldsOf, formContent, wordsIn, type FormValues } from "./form.js";
import { useDrive } from "../app/drive.js";

/** Something that an agent asks, to be answered here. Keys work for one card at a time. */
export function AskCard({ ask, cwd, keys, where }: { ask: Ask; cwd?: string | undefined; keys: boolean; where?: ReactNode }) {
  const card = useRef<HTMLElement>(null);
  const calm = useCalm(card);
  return (
    <section ref={card} className="ask" aria-label="The agent asks" data-ask={ask.kind}>
      {where}
      {ask.kind === "permission" ? <Permission ask={ask} cwd={cwd} keys={keys} calm={calm} /> : ask.kind === "question" ? <Questions ask={ask} calm={calm} /> : <Elicitation ask={ask} calm={calm} />}
    </section>
  );
}

/** The buttons that answer. */
function Answers({ calm, children }: { calm: Calm; children: ReactNode }) {
  return (
    <div
      className="row" role="group" aria-label="Answers" aria-disabled={calm.calm ? undefined : true}
      onClickCapture={(event) => {
        if (calm.now()) return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      {children}
    </div>
  );
}

function Key({ keys, what, run }: { keys: string; what: string; run: () => void }) {
  useShortcut({ keys, what, group: "Permission", run });
  return null;
}

const order = ["allow_once", "allow_always", "reject_once", "reject_always"];
/** Kinds that this page does not know come last. */
const rank = (kind: string) => (order.includes(kind) ? order.indexOf(kind) : order.length);
const optionKeys: Record<string, string> = { allow_once: "y", allow_always: "a", reject_once: "x", reject_always: "d" };

function Permission({ ask, cwd, keys, calm }: { ask: Extract<Ask, { kind: "permission" }>; cwd: string | undefined; keys: boolean; calm: Calm }) {
  const { title, description, subject, options } = ask.request;
  const toolCall = subject?.toolCall;
  const content = useMemo(() => contentsOf(toolCall?.content), [toolCall]);
  const drive = useDrive();
  const letters = useSelected(settings, (s) => s.letters);
  const sorted = options.toSorted((a, b) => rank(a.kind) - rank(b.kind));
  const used = new Set<string>();
  const typing = useTyping();
  const choose = (optionId: string) => ask.answer({ outcome: { outcome: "selected", optionId } });
  const command = subject?.command ?? commandOf(toolCall?.rawInput);
  return (
    <>
      <h2><Icon name="warning" /> Allow this? <span className="ask-title">{title}</span></h2>
      {description && <Markdown text={description} />}
      {toolCall?.locations && toolCall.locations.length > 0 && <p className="soft small mono">{toolCall.locations.slice(0, 5).map((l) => relativeTo(l.path, cwd)).join(", ")}</p>}
      {command && (command !== title || command.includes("\n")) && <Command command={command} />}
      {subject?.cwd && <p className="soft small">in <span className="mono">{subject.cwd}</span></p>}
      <div className="ask-content">
        {content.map((c, i) => c.type === "diff"
          ? <Diff key={i} path={relativeTo(c.path, cwd)} before={c.oldText} after={c.newText} change={c.change} />
          : c.type === "change" ? <Change key={i} change={c.change} short={(path) => relativeTo(path, cwd)} />
          : c.type === "content" && c.content.type === "text" ? <Markdown key={i} text={c.content.text} /> : null)}
      </div>
      {!command && content.length === 0 && toolCall?.rawInput !== undefined && toolCall.rawInput !== null && (
        <details className="raw"><summary>Input</summary><Code code={JSON.stringify(toolCall.rawInput, null, 2)} language="json" bare /></details>
      )}
      <Answers calm={calm}>
        {sorted.map((option) => {
          const key = optionKeys[option.kind];
          const mine = keys && key && !used.has(key) ? key : undefined;
          if (mine) used.add(mine);
          return (
            <Button key={option.optionId} tone={option.kind === "allow_once" ? "primary" : option.kind.startsWith("reject") ? "danger" : "plain"} {...drive} onClick={() => choose(option.optionId)}>
              {option.name}
              {mine && letters && <Kbd keys={mine} away={typing || !calm.calm} />}
              {mine && calm.calm && !drive.disabled && <Key keys={mine} what={option.name} run={() => calm.now() && choose(option.optionId)} />}
            </Button>
          );
        })}
      </Answers>
    </>
  );
}

/** What is shown of a command before somebody asks for the rest. */
const shownOf = { characters: 600, lines: 12 } as const;

/** A command, wrapped; of a long one it is said that there is more. */
function Command({ command }: { command: string }) {
  const [all, setAll] = useState(false);
  const cut = command.split("\n").slice(0, shownOf.lines).join("\n").slice(0, shownOf.characters);
  const more = command.length - cut.length;
  return (
    <>
      <Code code={all || more === 0 ? command : `${cut}…`} language="bash" bare />
      {!all && more > 0 && <p className="row"><Button small icon="terminal" onClick={() => setAll(true)}>Show all of the command</Button> <span className="small">{plural(more, "more character")}</span></p>}
    </>
  );
}

function commandOf(input: unknown): string | undefined {
  if (typeof input !== "object" || input === null || !("command" in input)) return undefined;
  const { command } = input;
  return typeof command === "string" ? command : Array.isArray(command) ? command.join(" ") : undefined;
}

function Questions({ ask, calm }: { ask: Extract<Ask, { kind: "question" }>; calm: Calm }) {
  const drive = useDrive();
  const { questions } = ask.request;
  const [answers, setAnswers] = useForm<readonly { readonly chosen: readonly string[]; readonly own: string }[]>(forms, placeOf(ask), () => questions.map(() => ({ chosen: [], own: "" })), (all) => all.map((a) => a.own.trim()).filter(Boolean).join("\n\n"));
  const given = answers.map((a) => [...a.chosen, ...(a.own.trim() === "" ? [] : [a.own.trim()])]);
  const complete = given.every((a) => a.length > 0);
  const change = (i: number, part: Partial<(typeof answers)[number]>) => setAnswers(answers.map((a, k) => (k === i ? { ...a, ...part } : a)));
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        if (complete) ask.answer({ outcome: "answered", answers: given });
      }}
    >
      {questions.map((q, i) => {
        const answer = answers[i]!;
        return (
          <fieldset key={q.id} className="question">
            <legend><span className="badge">{q.header || "Question"}</span> {q.question}</legend>
            {q.options.map((option) => {
              const on = answer.chosen.includes(option.label);
              return (
                <label key={option.label} className={`option ${on ? "on" : ""}`}>
                  <input
                    type={q.multiSelect ? "checkbox" : "radio"} name={`${ask.id}-${q.id}`} checked={on}
                    onChange={() => change(i, q.multiSelect ? { chosen: on ? answer.chosen.filter((l) => l !== option.label) : [...answer.chosen, option.label] } : { chosen: [option.label], own: "" })}
                  />
                  <span>{option.label}{option.description && <span className="hint">{option.description}</span>}</span>
                </label>
              );
            })}
            <Input aria-label={`Your own answer: ${q.question}`} placeholder={q.options.length > 0 ? "Or in your own words" : "Your answer"} value={answer.own} onChange={(e) => change(i, q.multiSelect ? { own: e.target.value } : { own: e.target.value, chosen: [] })} />
          </fieldset>
        );
      })}
      <Answers calm={calm}>
        <Button type="submit" tone="primary" disabled={!complete} {...drive}>Answer</Button>
        <Button tone="quiet" {...drive} onClick={() => ask.answer({ outcome: "rejected", answers: [] })}>Decline</Button>
      </Answers>
    </form>
  );
}

function Elicitation({ ask, calm }: { ask: Extract<Ask, { kind: "elicitation" }>; calm: Calm }) {
  const drive = useDrive();
  const request = ask.request as { message: string; mode?: string; url?: string; requestedSchema?: unknown };
  const fields = fieldsOf(request.requestedSchema);
  const [values, setValues] = useForm<FormValues>(forms, placeOf(ask), () => emptyForm(fields), (filled) => wordsIn(fields, filled));
  const [problems, setProblems] = useState<Readonly<Record<string, string>>>({});
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (Object.keys(problems).length > 0) form.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus();
  }, [problems]);
  const safe = request.url !== undefined && /^https?:/.test(request.url);
  return (
    <form
      ref={form} className="stack" noValidate
      onSubmit={(event) => {
        event.preventDefault();
        const { content, problems: found } = formContent(fields, values);
        setProblems(found);
        if (Object.keys(found).length === 0) ask.answer((request.mode === "url" ? { action: "accept" } : { action: "accept", content }) as never);
      }}
    >
      <div className="ask-message"><Icon name="info" /> <Markdown text={request.message} /></div>
      {request.mode === "url" && (safe ? <p><a href={request.url} target="_blank" rel="noreferrer noopener">{request.url}</a></p> : <p className="bad-text">The address is not one that can be opened: {request.url}</p>)}
      {fields.map((field) => {
        const value = values[field.name];
        const set = (v: FormValues[string]) => setValues({ ...values, [field.name]: v });
        if (field.type === "boolean") return <Checkbox key={field.name} label={field.label} hint={field.description} checked={value === true} onChange={(e) => set(e.target.checked)} />;
        if (field.type === "many") {
          const chosen = Array.isArray(value) ? value : [];
          return (
            <fieldset key={field.name} className="question">
              <legend>{field.label}</legend>
              {field.choices.map((c) => <Checkbox key={c.value} label={c.label} checked={chosen.includes(c.value)} onChange={(e) => set(e.target.checked ? [...chosen, c.value] : chosen.filter((v) => v !== c.value))} />)}
              {problems[field.name] && <p className="hint bad">{problems[field.name]}</p>}
            </fieldset>
          );
        }
        return (
          <Field key={field.name} label={field.label} hint={field.description} error={problems[field.name]} optional={!field.required}>
            {(props) =>
              field.type === "one"
                ? <Select {...props} value={String(value ?? "")} onChange={(e) => set(e.target.value)}><option value="">Choose…</option>{field.choices.map((c) => <option key={c.value} value={c.value}>{c.label}</option>)}</Select>
                : field.type === "json"
                  ? <TextArea {...props} className="mono" spellCheck={false} placeholder={field.holds === "array" ? "[]" : "{}"} value={String(value ?? "")} onChange={(e) => set(e.target.value)} />
                : field.long
                  ? <TextArea {...props} value={String(value ?? "")} onChange={(e) => set(e.target.value)} />
                  : <Input {...props} type={field.input} value={String(value ?? "")} onChange={(e) => set(e.target.value)} />}
          </Field>
        );
      })}
      <Answers calm={calm}>
        <Button type="submit" tone="primary" {...drive}>{request.mode === "url" ? "I have done it" : "Send"}</Button>
        <Button {...drive} onClick={() => ask.answer({ action: "decline" })}>Decline</Button>
        <Button tone="quiet" {...drive} onClick={() => ask.answer({ action: "cancel" })}>Cancel</Button>
      </Answers>
    </form>
  );
}
