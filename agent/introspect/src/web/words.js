// What the words of states mean, and which of them say that something is not right.

const VALUES = {
  CONFIGURED: "In the system, as it was asked for.",
  OBTAINED: "In the system without anybody who asked for it here, such as a port or a route of another program.",
  IN_PROGRESS: "An operation on it is under way.",
  PENDING: "Asked for, and waits for something that is not there yet.",
  CYCLIC: "Asked for, and part of a circle of values that wait for one another.",
  CONFLICT: "Asked for, while another value has what it needs, such as its name or address.",
  MISSING: "It was in the system, and is gone without an operation of the agent.",
  DRIFTED: "It was in the system, and others have changed it.",
  INVALID: "Cannot be tried: what was asked for makes no sense together.",
  UNIMPLEMENTED: "The agent does not know this kind of value.",
  FAILED: "The system has refused it. It is tried again from time to time, and when something that it needs changes.",
  RETRYING: "The last operation failed; it is tried again soon.",
};
const SERVICES = {
  ready: "All of its states are reached.",
  reached: "What this state asks for is in the system.",
  "not-reached": "Waits for something: its line says for what.",
  failed: "Something of it cannot be done: its line says why.",
  zombie: "Deleted, while some of what it made is still there.",
  "backs out": "What it made is being taken away again.",
};
const OPERATIONS = {
  done: "All operations were carried out and read back.",
  verified: "Carried out, and read back from the system.",
  completed: "Carried out, and not read back, since the transaction failed before.",
  failed: "The system has refused it.",
  "not given back": "Carried out, but the system keeps what was to be given back.",
  "not tried": "Never begun, because another operation had failed.",
};
const SEVERITIES = {
  critical: "Something does not work, and somebody has to act at once.",
  major: "Something does not work.",
  minor: "Something works worse than it should.",
  warning: "Something may soon not work.",
};
const EFFECTS = {
  DOWN: "Nothing of it works.",
  DEGRADED: "Part of it works.",
  MAINTENANCE: "A maintenance session has it.",
  UNKNOWN: "Its reporter has not repeated its word in time.",
};
const LINKS = {
  UP: "Carries packets.",
  DOWN: "Does not carry packets.",
  LOWER_LAYER_DOWN: "The link below it is down.",
  DORMANT: "Waits for something outside.",
  NOT_PRESENT: "Some part of it is missing.",
  TESTING: "Under test.",
  shut: "Administratively down.",
  "not there": "It is configured, and not on the box.",
};
const SESSIONS = {
  announced: "Those who are affected are asked; nothing is changed yet.",
  draining: "Traffic is led away from what is maintained.",
  ready: "Nothing stands on it any more; it waits for its start.",
  "in-maintenance": "The work is done now.",
  restoring: "It is taken into use again.",
  over: "It is in use again.",
  cancelled: "Somebody has called it off.",
  failed: "It could not be done.",
};

export const WORDS = { values: VALUES, services: SERVICES, operations: OPERATIONS, severities: SEVERITIES, effects: EFFECTS, links: LINKS, sessions: SESSIONS };

/** What a word means. The words of values, which are the most, are in capitals. */
export function explanation(word) {
  for (const words of [VALUES, SERVICES, OPERATIONS, SEVERITIES, LINKS, EFFECTS, SESSIONS]) {
    if (words[word]) return words[word];
  }
  return null;
}

const RIGHT_VALUES = new Set(["CONFIGURED", "OBTAINED", "IN_PROGRESS"]);

/** True for a value that is not as it should be: also for one that does without a part. */
export const isValueWrong = (it) => !RIGHT_VALUES.has(it.state) || (it.state === "CONFIGURED" && it.why !== "");

export const isServiceWrong = (it) => it.Status !== "ready";

/** True for a link that is meant to carry packets and does not, or of which somebody says so. */
export function isLinkWrong(it) {
  if (it.AdminStatus === null) return true;
  const works = ["UP", "UNKNOWN"].includes(it.OperStatus);
  return it.EffectiveStatus !== null || (it.AdminStatus === "UP" && !works);
}

export const isTransactionWrong = (it) => it.Error !== null || it.Failed.length > 0;
