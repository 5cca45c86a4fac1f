//! Tells webhooks of ends: signed as the Standard Webhooks specification (<https://www.standardwebhooks.com>) has it,
//! and told again until they are heard.
//!
//! What is to be told follows from the journal, and that it was heard is journaled: a hub that is killed in between
//! tells it once more, with the same id.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::redirect::Policy;
use ring::hmac;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::runtime::{Builder, Runtime};

use crate::Error;
use crate::hub::{Hub, OWN_FOLDER, Speaker, now};
use crate::operation::Operation;
use crate::store::webhooks::{Delivery, Webhook};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// The pauses between tries.
const PAUSES: (i64, i64) = (1_000, 3_600_000);
/// After this nobody will hear it.
const GIVEN_UP: i64 = 7 * 86_400_000;
/// Ends that can be told of.
const STATES: [&str; 3] = ["completed", "failed", "canceled"];
/// What a secret begins with.
const PREFIX: &str = "whsec_";

impl Hub {
    /// Adds an address that is told of ends: of these, or of all.
    pub fn add_webhook(
        &self,
        by: &Speaker,
        url: &str,
        states: &[String],
    ) -> Result<Webhook, Error> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if parsed.and_then(|url| url.host_str().map(str::len)).is_none() {
            let reason = format!("url: {url:?} is no address: it begins with http:// or https://");
            return Err(Error::Invalid(reason));
        }
        if let Some(wrong) = states.iter().find(|state| !STATES.contains(&state.as_str())) {
            let known = STATES.join(", ");
            return Err(Error::Invalid(format!("states: {wrong:?} is none of {known}")));
        }
        let mut id = [0; 6];
        random(&mut id)?;
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let states =
            if states.is_empty() { STATES.map(String::from).to_vec() } else { states.into() };
        let webhook = Webhook { id, url: url.to_string(), states };
        self.webhook_secret()?;
        self.say(by, Operation::AddWebhook { webhook: webhook.clone() })?;
        Ok(webhook)
    }

    /// Removes one; what it has not heard is not told any more.
    pub fn remove_webhook(&self, by: &Speaker, id: &str) -> Result<(), Error> {
        self.say_after(by, |store| {
            let webhook = store.webhook(id)?.id;
            Ok(vec![Operation::RemoveWebhook { webhook }])
        })
        .map(drop)
    }

    /// The secret that everything is signed with; it is made where there is none.
    pub fn webhook_secret(&self) -> Result<String, Error> {
        let path = self.runs().join(OWN_FOLDER).join("webhook.secret");
        if let Ok(kept) = fs::read_to_string(&path) {
            return Ok(kept.trim().to_string());
        }
        let mut key = [0; 32];
        random(&mut key)?;
        let secret = format!("{PREFIX}{}", STANDARD.encode(key));
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| {
            writeln!(file, "{secret}")?;
            file.sync_all()
        });
        match written {
            // Somebody else has just made it.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                self.webhook_secret()
            }
            other => other.map(|()| secret).map_err(Error::io(&path)),
        }
    }
}

fn random(bytes: &mut [u8]) -> Result<(), Error> {
    let wrong = |error| Error::Invalid(format!("the system gives no random bytes: {error}"));
    getrandom(bytes, GetRandomFlags::empty()).map(drop).map_err(wrong)
}

/// The signature of a message: of its id, the time in seconds, and its body.
pub(crate) fn sign(secret: &str, id: &str, seconds: i64, body: &str) -> String {
    let encoded = secret.strip_prefix(PREFIX).unwrap_or(secret);
    let key = STANDARD.decode(encoded).unwrap_or_else(|_| secret.as_bytes().to_vec());
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let tag = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(tag))
}

/// Tells webhooks what they have not heard.
pub(crate) struct Teller {
    hub: Hub,
    http: reqwest::Client,
    runtime: Runtime,
}

impl Teller {
    pub(crate) fn new(hub: Hub) -> Result<Self, Error> {
        let wrong = |error: &dyn ToString| Error::Invalid(error.to_string());
        // Whoever was first has the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A redirect could lead to a place that nobody has named.
        let http = reqwest::Client::builder().redirect(Policy::none()).timeout(PATIENCE).build();
        let runtime = Builder::new_current_thread().enable_all().build();
        let http = http.map_err(|error| wrong(&error))?;
        Ok(Self { hub, http, runtime: runtime.map_err(|error| wrong(&error))? })
    }

    /// Tells all that is due once.
    pub(crate) fn turn(&mut self) -> Result<(), Error> {
        for delivery in self.hub.store().deliveries(now())? {
            let heard = self.runtime.block_on(self.tell(&delivery));
            let given_up = now() - delivery.created > GIVEN_UP;
            match heard {
                Err(error) if !given_up => {
                    let pause = PAUSES.0.saturating_mul(1 << delivery.attempts.clamp(0, 20));
                    let due = now() + pause.min(PAUSES.1);
                    tracing::warn!(url = delivery.url, error, "a webhook has not heard");
                    self.hub.store().tell_again(&delivery.id, due, &error)?;
                }
                heard => {
                    let (id, error) = (delivery.id, heard.err());
                    let delivered = Operation::Delivered { delivery: id, error };
                    self.hub.say(&Speaker::default(), delivered)?;
                }
            }
        }
        Ok(())
    }

    async fn tell(&self, delivery: &Delivery) -> Result<(), String> {
        let secret = self.hub.webhook_secret().map_err(|error| error.to_string())?;
        let seconds = now() / 1000;
        let request = self
            .http
            .post(&delivery.url)
            .header("content-type", "application/json")
            .header("webhook-id", &delivery.id)
            .header("webhook-timestamp", seconds.to_string())
            .header("webhook-signature", sign(&secret, &delivery.id, seconds, &delivery.body))
            .body(delivery.body.clone());
        let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answers {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_signed_as_the_specification_shows() {
        // The example of the specification's own libraries.
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = r#"{"test": 2432232314}"#;
        let signed = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
