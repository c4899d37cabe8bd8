// Talks to the server; every error becomes an Error with the server's own words.

let askForToken = null;

export function whenTokenIsNeeded(ask) {
  askForToken = ask;
}

export async function call(path, { method = "GET", body = undefined } = {}) {
  const request = { method, headers: {} };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 401 && askForToken && path !== "/session") {
    await askForToken();
    return call(path, { method, body });
  }
  return answerOf(response.status, await response.text());
}

function answerOf(status, text) {
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    throw failure(status, "The server's answer cannot be read.");
  }
  if (status >= 400) throw failure(status, answer?.detail ?? `The server answered with ${status}.`);
  return answer;
}

function failure(status, words) {
  const error = new Error(words);
  error.status = status;
  return error;
}

// Sends a file and tells how much of it has gone; fetch cannot tell that.
export function upload(path, file, fields, onProgress) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  form.append("file", file, file.name);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    request.upload.addEventListener("progress", (event) => event.lengthComputable && onProgress(event.loaded / event.total));
    request.addEventListener("load", () => {
      try {
        resolve(answerOf(request.status, request.responseText));
      } catch (error) {
        reject(error);
      }
    });
    request.addEventListener("error", () => reject(new Error("The file could not be sent. Is the server still running?")));
    request.send(form);
  });
}

// Listens to a model's events until they end; goes on by itself when the connection breaks.
export function listen(path, { onState, onProgress, onLost, onFound }) {
  let source = null;
  let timer = 0;
  const open = () => {
    source = new EventSource(path);
    source.addEventListener("open", () => onFound());
    source.addEventListener("state", (event) => onState(JSON.parse(event.data)));
    source.addEventListener("progress", (event) => onProgress(JSON.parse(event.data)));
    source.addEventListener("end", () => source.close());
    source.addEventListener("error", () => {
      onLost();
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, 3000);
    });
  };
  open();
  return () => {
    clearTimeout(timer);
    source.close();
  };
}
