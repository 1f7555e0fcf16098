// What can be said of the fleet's files without Docker and without a cluster: that they fit
// the types of Kubernetes, and that the names in them are names of something.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";

const fleet = join(import.meta.dirname, "../fleet");
const docs = join(import.meta.dirname, "../../docs");
const require = createRequire(import.meta.url);
const files = ["nats.yaml", "hub.yaml", "box.yaml"];

interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
}

function manifests(text: string): Manifest[] {
  return parseAllDocuments(text).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as Manifest;
  });
}

const read = (file: string): string => readFileSync(join(fleet, "kubernetes", file), "utf8");

/** What the types say of manifests: names that they do not know, too, which a cluster drops without a word. */
function mistakes(all: readonly Manifest[]): string[] {
  const source = all.map((one, i) => `import type { I${one.kind} as T${i} } from "kubernetes-models/${one.apiVersion}";\nexport const m${i}: T${i} = ${JSON.stringify(one, null, 1)};`).join("\n");
  const dir = mkdtempSync(join(import.meta.dirname, ".manifests-")); // below the packages that it needs
  try {
    writeFileSync(join(dir, "manifests.ts"), source);
    writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({
      compilerOptions: { strict: true, noEmit: true, skipLibCheck: true, module: "esnext", moduleResolution: "bundler", target: "es2022", types: [] },
      files: ["manifests.ts"],
    }));
    const { status, stdout, stderr } = spawnSync(process.execPath, [join(import.meta.dirname, "../node_modules/typescript/bin/tsc"), "-p", dir, "--pretty", "false"], { encoding: "utf8" });
    expect(status === 0, stderr).toBe(stdout === "");
    return stdout.split("\n").filter((line) => line !== "");
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

describe("the fleet in Kubernetes", () => {
  test("the manifests fit the types, and hold what these cannot say", () => {
    const all = files.flatMap((file) => manifests(read(file)));
    expect(mistakes(all)).toEqual([]);
    for (const manifest of all) {
      const models = require(`kubernetes-models/${manifest.apiVersion}`) as Record<string, new (data: unknown) => { validate(): void }>;
      const Model = models[manifest.kind];
      if (!Model) throw new Error(`there is no ${manifest.kind} in ${manifest.apiVersion}`);
      new Model(manifest).validate();
    }
    const [first] = manifests(read("hub.yaml").replace("readinessProbe:", "readynessProbe:")).filter((one) => one.kind === "StatefulSet");
    expect(mistakes([first as Manifest]).join(), "a name with a slip").toContain("readynessProbe");
  });

  test("what one manifest names, another one makes", () => {
    const all = files.flatMap((file) => manifests(read(file)));
    const made = new Set(all.map((one) => `${one.kind} ${one.metadata.name}`));
    const hub = read("hub.yaml");
    for (const host of hub.match(/nats-\d\.nats:4222/g) ?? []) expect(Number(/nats-(\d)/.exec(host)?.[1])).toBeLessThan(3);
    // The other hubs reach each by a name for which README makes a certificate, under TLS.
    const [set] = manifests(hub).filter((one) => one.kind === "StatefulSet") as (Manifest & { spec: { serviceName: string } })[];
    expect(hub).toContain(`"https://$(POD_NAME).${set?.spec.serviceName}:2470"`);
    expect(readFileSync(join(fleet, "README.md"), "utf8")).toContain(`DNS:*.${set?.spec.serviceName}\``);
    for (const file of hub.match(/(?<=\/run\/secrets\/sandbox-hub\/)\S+(?= })/g) ?? []) expect(hub).toMatch(new RegExp(`--from-file=(tls/)?${file}`));
    for (const name of ["StatefulSet nats", "Service nats", "PodDisruptionBudget nats", "StatefulSet sandbox-hub", "Service sandbox-hub", "Service sandbox-hub-peers", "PodDisruptionBudget sandbox-hub", "StatefulSet box", "Service box"]) expect(made).toContain(name);
  });
});

test("a server of the store that is to end is asked to give its work away, and has the time for it", () => {
  const all = manifests(read("nats.yaml"));
  const { data } = all.find((one) => one.kind === "ConfigMap") as Manifest & { data: { "nats.conf": string } };
  const { spec } = all.find((one) => one.kind === "StatefulSet") as Manifest & {
    spec: { template: { spec: { terminationGracePeriodSeconds: number; containers: { lifecycle?: { preStop?: { exec?: { command: string[] } } } }[] } } };
  };
  const conf = data["nats.conf"];
  const seconds = (name: string): number => Number(new RegExp(`^${name}: (\\d+)s$`, "m").exec(conf)?.[1]);
  const pid = /^pid_file: (.*)$/m.exec(conf)?.[1];
  // SIGTERM, which is all that a container is told, ends a server at once.
  expect(spec.template.spec.containers[0]?.lifecycle?.preStop?.exec?.command).toEqual(["nats-server", "--signal", `ldm=${pid}`]);
  expect(spec.template.spec.terminationGracePeriodSeconds).toBeGreaterThan(seconds("lame_duck_grace_period") + seconds("lame_duck_duration"));
});

describe("the fleet in compose", () => {
  const compose = parse(readFileSync(join(fleet, "compose.yaml"), "utf8"), { merge: true }) as {
    services: Record<string, { depends_on?: string[] | Record<string, unknown>; networks?: string[]; secrets?: string[]; volumes?: string[]; build?: { target: string } }>;
    networks: Record<string, unknown>;
    secrets: Record<string, unknown>;
    volumes: Record<string, unknown>;
  };

  test("all that services name is there", () => {
    const stages = readFileSync(join(fleet, "../docker/Dockerfile"), "utf8").match(/(?<= AS )\S+/g) ?? [];
    for (const [name, service] of Object.entries(compose.services)) {
      const needs = service.depends_on ?? [];
      for (const other of Array.isArray(needs) ? needs : Object.keys(needs)) expect(Object.keys(compose.services), name).toContain(other);
      for (const network of service.networks ?? []) expect(Object.keys(compose.networks), name).toContain(network);
      for (const secret of service.secrets ?? []) expect(Object.keys(compose.secrets), name).toContain(secret);
      for (const volume of service.volumes ?? []) if (!volume.startsWith("./")) expect(Object.keys(compose.volumes), name).toContain(volume.split(":")[0]);
      if (service.build) expect(stages, name).toContain(service.build.target);
    }
    // With TLS as well: secrets that are there, and a certificate that README makes for each name.
    const tls = parse(readFileSync(join(fleet, "compose.tls.yaml"), "utf8"), { merge: true }) as Pick<typeof compose, "secrets"> & { services: Record<string, { secrets?: string[]; environment?: Record<string, string>; volumes?: (string | { target: string; bind: { create_host_path: boolean } })[] }> };
    const readme = readFileSync(join(fleet, "README.md"), "utf8");
    for (const [name, service] of Object.entries(tls.services)) {
      expect(Object.keys(compose.services), name).toContain(name);
      for (const secret of service.secrets ?? []) expect([...Object.keys(compose.secrets), ...Object.keys(tls.secrets)], name).toContain(secret);
      if (!name.startsWith("hub-")) continue;
      expect(service.environment?.SANDBOX_HUB_ADVERTISE).toBe(`https://${name}:2470`);
      expect(readme).toContain(`DNS:${name}`);
    }
    // A container sees of a file that is mounted the one that was there when it began: what is renewed is in a folder, and
    // Docker makes no empty one in its place where there is none yet.
    for (const name of ["hub-1", "hub-2", "hub-3"]) {
      const { environment = {}, volumes = [] } = tls.services[name] ?? {};
      const folders = volumes.flatMap((volume) => (typeof volume === "object" && !volume.bind.create_host_path ? [volume.target] : []));
      for (const variable of ["SANDBOX_HUB_TLS_CERT", "SANDBOX_HUB_TLS_KEY"]) expect(folders, variable).toContain(dirname(environment[variable] ?? ""));
    }
    const [box, hub] = [compose.services.box, compose.services["hub-1"]];
    expect(box?.networks?.filter((network) => hub?.networks?.includes(network)), "networks of a box that hubs are in").toEqual([]);
  });
});

test("the README's blocks name no program that its reader does not have, and stop where something fails", () => {
  const readme = readFileSync(join(fleet, "README.md"), "utf8");
  for (const section of readme.split(/^## /m).slice(1)) {
    const needed = new Set([...(/^You need .*$/m.exec(section)?.[0] ?? "").matchAll(/`([a-z-]+)`/g)].map(([, name]) => name));
    const everywhere = ["cd", "mkdir", "chmod", "touch", "printf", "tr", "umask"];
    for (const [, block = ""] of section.matchAll(/^```sh\n([\s\S]*?)^```/gm)) {
      const lines = block.trimEnd().split("\n");
      for (const line of lines.slice(0, -1)) expect(line, "a line of a block that is pasted").toMatch(/&&$/);
      for (const [, name = ""] of block.matchAll(/(?:^|[(|]|&&)\s*([a-z][a-z-]*)\b(?![-=])/gm)) expect([...everywhere, ...needed], section.split("\n")[0]).toContain(name);
    }
  }
});

/** Stands for a program that hubs run in: they read the admin token once, as they begin, and know no other. */
const hubs = `begin() { [ -f hub-read ] || cp admin-token hub-read; }
token() { cmp -s admin-token hub-read && echo "join-$$" || exit 4; }
fail() { [ -f "failed-$1" ] || { touch "failed-$1"; exit 1; }; }
case "$*" in`;
const doubles = {
  docker: `${hubs}
  *--wait*caddy) begin ;;
  *"token create"*) token; fail token ;;
  *--scale*) fail box; [ -s join-token ] || exit 5 ;;
esac`,
  kubectl: `${hubs}
  *--dry-run*) echo yaml ;;
  "create secret"*) mkdir "$4" || exit 1 ;;
  *hub.yaml*) begin ;;
  *box.yaml*) fail box; [ -s join-token ] || exit 5 ;;
esac`,
  "sandbox-hub": `${hubs} *) token; fail token ;; esac`,
};

test.each(["On one machine", "In Kubernetes"])("the README's block of %s is run again when it has failed, and when it has not", (title) => {
  const section = readFileSync(join(fleet, "README.md"), "utf8").split(/^## /m).find((text) => text.startsWith(title)) ?? "";
  const block = [...section.matchAll(/^```sh\n([\s\S]*?)^```/gm)].map(([, text = ""]) => text).find((text) => text.startsWith("cd ")) ?? "";
  const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-fleet-"));
  try {
    mkdirSync(join(dir, "bin"));
    for (const [name, text] of Object.entries(doubles)) writeFileSync(join(dir, "bin", name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    mkdirSync(join(dir, "examples/fleet"), { recursive: true });
    const file = (name: string): string => readFileSync(join(dir, "examples/fleet", name), "utf8");
    const codes: (number | null)[] = [];
    const again = (): void => {
      const { status } = spawnSync("sh", ["-c", block], { cwd: dir, env: { PATH: `${join(dir, "bin")}:${process.env.PATH}` } });
      codes.push(status);
    };
    again(); // its token is not made
    const admin = file("admin-token");
    expect(admin).toMatch(/^.{44}$/);
    again(); // no box begins
    expect(file("join-token")).toMatch(/^join-\d+$/);
    again();
    again(); // with more boxes, say
    expect(codes).toEqual([1, 1, 0, 0]);
    expect(file("admin-token"), "hubs that run know no other").toBe(admin);
    rmSync(join(dir, "examples/fleet/failed-token"));
    const before = file("join-token");
    again(); // with the hubs away
    expect(codes.at(-1)).toBe(1);
    expect(file("join-token"), "boxes that run have this one").toBe(before);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});

test("the programs know all variables that are set for them", () => {
  const names = (text: string): Set<string> => new Set(text.match(/SANDBOX_(?:HUB|AGENT)_\w+/g));
  const known = names(["cli.mdx", "hub-cli.mdx"].map((page) => readFileSync(join(docs, page), "utf8")).join());
  const set = names([...["compose.yaml", "compose.tls.yaml"].map((file) => readFileSync(join(fleet, file), "utf8")), ...files.map(read), readFileSync(join(fleet, "../docker/Dockerfile"), "utf8")].join());
  expect([...set].filter((name) => !known.has(name))).toEqual([]);
  expect(set.size).toBeGreaterThan(8);
});
