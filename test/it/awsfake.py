"""A stand-in for the parts of AWS that the vault provider talks to, on loopback: Secrets Manager, STS, and the
credential endpoints of containers and machines.

    aws = AwsFake()                     # serves until aws.close()
    aws.keys["AKIDTEST"] = Key("secret", token=None)
    aws.script("GetSecretValue", refuse("ThrottlingException", 400))
    aws.calls                           # [(operation, body)] in order of arrival

Signatures are verified for real, with an implementation of its own (hmac and hashlib). Labels of versions follow
AWS's rules, and discard() does what AWS may do at any time: it drops the versions that have none.
"""

import dataclasses
import datetime
import hashlib
import hmac
import http.server
import json
import re
import threading
import time
import urllib.parse

ACCOUNT = "123456789012"
MUST_SIGN = {"content-type", "host", "x-amz-content-sha256", "x-amz-date", "x-amz-target"}
AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
                           r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})")


@dataclasses.dataclass
class Key:
    secret: str
    token: str | None = None
    expired: bool = False


class Refusal(Exception):
    def __init__(self, kind, status=400, message="no", header=False):
        super().__init__(kind)
        self.kind, self.status, self.message, self.header = kind, status, message, header


def refuse(kind, status=400, message="no", header=False):
    """A scripted step: answer with this error. header: name it in x-amzn-errortype instead of __type."""
    def step(_handler, _act):
        raise Refusal(kind, status, message, header)
    return step


def raw(status, body, headers=()):
    """Answer with these bytes."""
    def step(handler, _act):
        handler.answer(status, body, headers)
    return step


def lose_answer(handler, act):
    """Do it, and hang up without a word."""
    act()
    handler.close_connection = True
    handler.connection.close()


def hang_up(handler, _act):
    handler.close_connection = True
    handler.connection.close()


def hold(event, began=None):
    """Say nothing until the event is set."""
    def step(handler, act):
        if began:
            began.set()
        event.wait(60)
        handler.reply(act())
    return step


def sign(secret, method, path, headers, names, body, date, region, service):
    canonical = "\n".join([method, path or "/", "",
                           "".join(f"{n}:{' '.join(headers[n].split())}\n" for n in names),
                           ";".join(names), hashlib.sha256(body).hexdigest()])
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (date[:8], region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece

    def setup(self):
        super().setup()
        self.aws.connections.append(self.connection)

    def log_message(self, *_):
        pass

    @property
    def aws(self):
        return self.server.aws

    def answer(self, status, body, headers=()):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def reply(self, document):
        self.answer(200, json.dumps(document), [("Content-Type", "application/x-amz-json-1.1"),
                                                ("x-amzn-RequestId", "request-1")])

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    # ---- credential endpoints ----

    def do_PUT(self):
        self.body()
        self.aws.endpoint_calls.append(("PUT", self.path))
        if self.path == "/latest/api/token" and self.headers.get("x-aws-ec2-metadata-token-ttl-seconds"):
            return self.answer(200, "imds-token")
        self.answer(400, "")

    def do_GET(self):
        self.aws.endpoint_calls.append(("GET", self.path))
        step = self.aws.scripted("GET")
        if step:
            return step(self, lambda: None)
        if self.path == "/container":
            if self.headers.get("Authorization") != self.aws.container_token:
                return self.answer(401, "who?")
            return self.answer(200, json.dumps(self.aws.handed_out()))
        if self.path.startswith("/latest/meta-data/iam/security-credentials/"):
            if self.headers.get("x-aws-ec2-metadata-token") != "imds-token":
                return self.answer(401, "")
            role = self.path.rsplit("/", 1)[1]
            return self.answer(200, json.dumps(self.aws.handed_out()) if role == "machine-role" else "machine-role")
        self.answer(404, "nothing here")

    def assume_role(self, body):
        form = dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True))
        self.aws.endpoint_calls.append(("STS", form.get("RoleArn")))
        step = self.aws.scripted("STS")
        if step:
            return step(self, lambda: None)
        if form.get("WebIdentityToken") != self.aws.web_token or form["Action"] != "AssumeRoleWithWebIdentity":
            return self.answer(400, "<ErrorResponse xmlns=\"x\"><Error><Code>InvalidIdentityToken</Code>"
                               f"<Message>arn:aws:iam::{ACCOUNT}:role/x</Message></Error></ErrorResponse>")
        c = self.aws.handed_out()
        self.answer(200, "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n"
                    "<AssumeRoleWithWebIdentityResult><Audience>x</Audience><Credentials>"
                    f"<AccessKeyId>{c['AccessKeyId']}</AccessKeyId><SecretAccessKey>{c['SecretAccessKey']}"
                    f"</SecretAccessKey><SessionToken>{c['Token']}</SessionToken>"
                    f"<Expiration>{c['Expiration']}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
                    "</AssumeRoleWithWebIdentityResponse>")

    # ---- Secrets Manager ----

    def verify(self, body):
        """The signature, before anything else is believed."""
        headers = {k.lower(): v for k, v in self.headers.items()}
        found = AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if not found:
            raise Refusal("MissingAuthenticationTokenException")
        key_id, day, region, service, names, signature = found.groups()
        names = names.split(";")
        key = self.aws.keys.get(key_id)
        if not key:
            raise Refusal("UnrecognizedClientException")
        if names != sorted(names) or not MUST_SIGN <= set(names) or service != "secretsmanager":
            raise Refusal("IncompleteSignatureException")
        if key.token != headers.get("x-amz-security-token") or (key.token and "x-amz-security-token" not in names):
            raise Refusal("UnrecognizedClientException")
        if headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            raise Refusal("InvalidSignatureException")
        date = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        if not headers["x-amz-date"].startswith(day) or abs((now - date).total_seconds()) > 300:
            raise Refusal("InvalidSignatureException")
        expected = sign(key.secret, "POST", self.path, headers, names, body, headers["x-amz-date"], region, service)
        if not hmac.compare_digest(expected, signature):
            raise Refusal("InvalidSignatureException")
        if key.expired:
            raise Refusal("ExpiredTokenException", message="The security token included in the request is expired")
        return region

    def do_POST(self):
        body = self.body()
        if "form-urlencoded" in self.headers.get("Content-Type", ""):
            return self.assume_role(body)
        operation = self.headers.get("x-amz-target", "").removeprefix("secretsmanager.")
        try:
            region = self.verify(body)
            document = json.loads(body)
            with self.aws.lock:
                self.aws.calls.append((operation, document))
                self.aws.headers.append({k.lower(): v for k, v in self.headers.items()})
                step = self.aws.scripted(operation)

            def act():
                with self.aws.lock:
                    return getattr(self.aws, operation)(document, region)
            if step:
                step(self, act)
            else:
                self.reply(act())
        except Refusal as e:
            kind = e.kind if e.header else f"com.amazonaws.secretsmanager#{e.kind}"
            error = {"message": e.message} if e.header else {"__type": kind, "message": e.message}
            self.answer(e.status, json.dumps(error), [("x-amzn-RequestId", "request-2")] +
                        ([("x-amzn-ErrorType", f"{kind}:http://internal.amazon.com/x/")] if e.header else []))
        except OSError:
            self.close_connection = True


class AwsFake:
    def __init__(self):
        self.lock = threading.RLock()
        self.keys = {"AKIDTEST": Key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")}
        self.secrets = {}          # name: {"ARN", "versions": {id: [value, {labels}]}, "deleted": bool, ...}
        self.calls = []            # (operation, body)
        self.headers = []          # of the same requests
        self.connections = []      # sockets, in order of arrival
        self.endpoint_calls = []   # (method, path) at the credential endpoints
        self.container_token = None
        self.web_token = "web-token"
        self.lifetime = 3600
        self.issued = 0
        self.steps = {}
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.aws = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def script(self, operation, *steps):
        """What happens to the next calls of this operation, one step each."""
        self.steps.setdefault(operation, []).extend(steps)

    def scripted(self, operation):
        steps = self.steps.get(operation)
        return steps.pop(0) if steps else None

    def operations(self):
        return [operation for operation, _ in self.calls]

    def handed_out(self):
        """New temporary credentials."""
        self.issued += 1
        key_id, token = f"ASIATEMP{self.issued}", f"session-token-{self.issued}/+="
        self.keys[key_id] = Key(f"temporary-secret-{self.issued}", token)
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.lifetime))
        return {"Code": "Success", "AccessKeyId": key_id, "SecretAccessKey": self.keys[key_id].secret,
                "Token": token, "Expiration": end}

    # ---- the service ----

    def find(self, secret_id, deleted_too=False):
        for name, secret in self.secrets.items():
            if secret_id in (name, secret["ARN"]):
                if secret["deleted"] and not deleted_too:
                    raise Refusal("InvalidRequestException", message="You can't perform this operation on the secret "
                                  "because it was marked for deletion.")
                return name, secret
        raise Refusal("ResourceNotFoundException", message="Secrets Manager can't find the specified secret.")

    def put(self, secret, token, value, labels):
        if len(token) < 32:
            raise Refusal("InvalidParameterException")
        for version in secret["versions"].values():
            version[1] -= set(labels)
        secret["versions"][token] = [value, set(labels)]

    def discard(self):
        """Versions without a label are AWS's to drop."""
        for secret in self.secrets.values():
            secret["versions"] = {i: v for i, v in secret["versions"].items() if v[1]}

    def labels(self, name):
        """{label: value} of a secret."""
        return {label: v[0] for v in self.secrets[name]["versions"].values() for label in v[1]}

    def CreateSecret(self, body, region):
        name = body["Name"]
        if name in self.secrets:
            if self.secrets[name]["deleted"]:
                raise Refusal("InvalidRequestException", message="already scheduled for deletion")
            raise Refusal("ResourceExistsException", message=f"The secret {name} already exists in {ACCOUNT}.")
        self.secrets[name] = {"ARN": f"arn:aws:secretsmanager:{region}:{ACCOUNT}:secret:{name}-AbC123",
                              "versions": {}, "deleted": False, **body}
        self.put(self.secrets[name], body["ClientRequestToken"], body["SecretString"], ["AWSCURRENT"])
        return {"ARN": self.secrets[name]["ARN"], "Name": name, "VersionId": body["ClientRequestToken"]}

    def PutSecretValue(self, body, _region):
        name, secret = self.find(body["SecretId"])
        self.put(secret, body["ClientRequestToken"], body["SecretString"], body["VersionStages"])
        return {"ARN": secret["ARN"], "Name": name, "VersionId": body["ClientRequestToken"],
                "VersionStages": body["VersionStages"]}

    def GetSecretValue(self, body, _region):
        name, secret = self.find(body["SecretId"])
        for version_id, (value, labels) in secret["versions"].items():
            if body.get("VersionId") == version_id or ("VersionId" not in body and body["VersionStage"] in labels):
                if isinstance(value, bytes):
                    return {"ARN": secret["ARN"], "Name": name, "VersionId": version_id, "SecretBinary": "AAEC"}
                return {"ARN": secret["ARN"], "Name": name, "VersionId": version_id, "SecretString": value,
                        "VersionStages": sorted(labels), "CreatedDate": 1.5e9}
        raise Refusal("ResourceNotFoundException", message="Secrets Manager can't find the specified secret value.")

    def DescribeSecret(self, body, _region):
        name, secret = self.find(body["SecretId"], deleted_too=True)
        return {"ARN": secret["ARN"], "Name": name, **({"DeletedDate": 1.7e9} if secret["deleted"] else {}),
                "VersionIdsToStages": {i: sorted(v[1]) for i, v in secret["versions"].items() if v[1]}}

    def UpdateSecretVersionStage(self, body, _region):
        name, secret = self.find(body["SecretId"])
        label, source, target = body["VersionStage"], body.get("RemoveFromVersionId"), body.get("MoveToVersionId")
        versions = secret["versions"]
        holder = next((i for i, v in versions.items() if label in v[1]), None)
        if (target and target not in versions) or (source and source not in versions):
            raise Refusal("ResourceNotFoundException", message="no such version")
        if holder != source:
            raise Refusal("InvalidParameterException", message=f"{label} is attached to {holder}")
        if source:
            versions[source][1].discard(label)
        if target:
            versions[target][1].add(label)
        if label == "AWSCURRENT" and source:
            for version in versions.values():
                version[1].discard("AWSPREVIOUS")
            versions[source][1].add("AWSPREVIOUS")
        return {"ARN": secret["ARN"], "Name": name}

    def DeleteSecret(self, body, _region):
        name, secret = self.find(body["SecretId"])
        if body.get("ForceDeleteWithoutRecovery"):
            del self.secrets[name]
        else:
            if not 7 <= body["RecoveryWindowInDays"] <= 30:
                raise Refusal("InvalidParameterException")
            secret["deleted"] = True
        return {"ARN": secret["ARN"], "Name": name, "DeletionDate": 1.8e9}

    def ListSecrets(self, body, _region):
        words = [v for f in body.get("Filters", []) for v in f["Values"]]
        rows = [{"ARN": s["ARN"], "Name": n, "Description": s.get("Description", ""), "Tags": s.get("Tags", []),
                 "KmsKeyId": s.get("KmsKeyId", ""), "CreatedDate": 1.5e9, "LastChangedDate": 1500000000.25}
                for n, s in sorted(self.secrets.items()) if not s["deleted"] and all(w in n for w in words)]
        start = int(body.get("NextToken", 0))
        end = start + body["MaxResults"]
        return {"SecretList": rows[start:end], **({"NextToken": str(end)} if end < len(rows) else {})}
