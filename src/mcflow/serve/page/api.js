// Requests to the server; every error becomes an Error with the message of the server.

let askForToken = null;

export function onTokenRequired(ask) {
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
    throw new Error("The server does not respond. Check that it is running.");
  }
  if (response.status === 401 && askForToken && path !== "/session") {
    await askForToken();
    return call(path, { method, body });
  }
  return parseResponse(response.status, await response.text());
}

function parseResponse(status, text) {
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    throw failure(status, "The response of the server is invalid.");
  }
  if (status >= 400) throw failure(status, content?.detail ?? `The server responded with status ${status}.`);
  return content;
}

function failure(status, message) {
  const error = new Error(message);
  error.status = status;
  return error;
}

// Uploads a file and reports the progress, which fetch cannot do.
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
        resolve(parseResponse(request.status, request.responseText));
      } catch (error) {
        reject(error);
      }
    });
    request.addEventListener("error", () => reject(new Error("The upload failed. Check that the server is running.")));
    request.send(form);
  });
}

// Listens to the events of a model until they end; reconnects when the connection is lost.
export function listen(path, { onState, onProgress, onLost, onOpen }) {
  let source = null;
  let timer = 0;
  const open = () => {
    source = new EventSource(path);
    source.addEventListener("open", () => onOpen());
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
