import { Component, type ReactNode } from "react";
import { Button } from "../kit/controls.js";
import { Notice } from "../kit/show.js";

/** An error in one area leaves the rest of the page alone. */
export class Boundary extends Component<{ children: ReactNode }, { error: Error | undefined }> {
  override state: { error: Error | undefined } = { error: undefined };

  static getDerivedStateFromError(error: unknown): { error: Error } {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div className="area">
        <Notice tone="bad" title="This part of the page failed" actions={<><Button onClick={() => this.setState({ error: undefined })}>Try again</Button><Button tone="quiet" onClick={() => location.reload()}>Reload the page</Button></>}>
          <p>{error.message}</p>
          <p>Sessions are not concerned: they live at the gateway.</p>
        </Notice>
      </div>
    );
  }
}
