// Early versions of agents: what they give stands in the agents' tables.
export default {};
