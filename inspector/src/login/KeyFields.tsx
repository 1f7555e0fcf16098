import { Field, Input } from "../kit/controls.js";

/** Credentials of one session. They are in memory, where the client needs them to take the session up again, and nowhere else. */
export interface Keys {
  readonly apiKey: string;
  readonly oauthToken: string;
  readonly baseUrl: string;
}

export const noKeys: Keys = { apiKey: "", oauthToken: "", baseUrl: "" };

/** What of them was filled in; undefined when nothing was. */
export function credentialsOf(keys: Keys): Record<string, string> | undefined {
  const given = Object.entries(keys).map(([name, value]) => [name, value.trim()] as const).filter(([, value]) => value !== "");
  return given.length > 0 ? Object.fromEntries(given) : undefined;
}

const labels: Record<keyof Keys, string> = { apiKey: "API key", oauthToken: "Token of a login", baseUrl: "Address of the provider" };

export function KeyFields({ keys, onChange, disabled }: { keys: Keys; onChange: (keys: Keys) => void; disabled?: boolean }) {
  return (
    <div className="pair three">
      {(Object.keys(labels) as (keyof Keys)[]).map((name) => (
        <Field key={name} label={labels[name]} optional>
          {(props) => <Input {...props} type={name === "baseUrl" ? "url" : "password"} autoComplete={name === "baseUrl" ? "off" : "new-password"} disabled={disabled} value={keys[name]} onChange={(e) => onChange({ ...keys, [name]: e.target.value })} />}
        </Field>
      ))}
    </div>
  );
}
