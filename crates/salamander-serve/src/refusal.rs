//! Why a request was not answered, and the status that says so.

/// A request that was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It cannot be understood.
    #[error("{0}")]
    Invalid(String),
    /// There is no such model, version or address.
    #[error("{0}")]
    NotFound(String),
    /// It has no token, or another one.
    #[error("a token is needed: send `Authorization: Bearer TOKEN`")]
    Unauthorized,
    /// It does not go with what is there.
    #[error("{0}")]
    Conflict(String),
    /// It may not be asked for here.
    #[error("{0}")]
    Forbidden(String),
    /// It did not arrive in time.
    #[error("{0}")]
    Slow(String),
    /// It is longer than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// Too many wait already.
    #[error("{0}")]
    Busy(String),
    /// The model is not there now.
    #[error("{0}")]
    Unavailable(String),
    /// Its deadline passed while it waited.
    #[error("the request's timeout passed while it waited")]
    Late,
    /// Nobody here can do this.
    #[error("{0}")]
    Unsupported(String),
    /// The address is known, but only with these methods.
    #[error("this address takes {0}")]
    Method(String),
    /// The model failed on it.
    #[error("{0}")]
    Failed(String),
}

impl Refusal {
    /// The status over HTTP; what says that too many wait can be chosen.
    pub fn status(&self, busy: u16) -> u16 {
        match self {
            Refusal::Invalid(_) => 400,
            Refusal::Unauthorized => 401,
            Refusal::Forbidden(_) => 403,
            Refusal::NotFound(_) => 404,
            Refusal::Method(_) => 405,
            Refusal::Slow(_) => 408,
            Refusal::Conflict(_) => 409,
            Refusal::TooLarge(_) => 413,
            Refusal::Failed(_) => 500,
            Refusal::Unsupported(_) => 501,
            Refusal::Unavailable(_) => 503,
            Refusal::Late => 504,
            Refusal::Busy(_) => busy,
        }
    }
}

/// What clients of Triton can ask of an output, and would miss in the answer.
const NOT_OF_OUTPUTS: [(&str, &str); 2] = [
    ("classification", "ask for the outputs \"label\" and \"probabilities\" instead"),
    ("shared_memory_region", "memory is not shared with clients here"),
];

/// Refuses an output of which something is asked that is not done here, by the names of its parameters.
pub(crate) fn check_output<'a>(
    name: &str,
    parameters: impl Iterator<Item = &'a String>,
) -> Result<(), Refusal> {
    for parameter in parameters {
        if let Some((known, instead)) = NOT_OF_OUTPUTS.iter().find(|(known, _)| known == parameter)
        {
            let reason = format!("output \"{name}\": there is no {known}: {instead}");
            return Err(Refusal::Invalid(reason));
        }
    }
    Ok(())
}

/// Refuses what Triton's clients can send with a model that is to be loaded, and would believe to be in service.
pub(crate) fn check_loading<'a>(
    mut parameters: impl Iterator<Item = &'a String>,
) -> Result<(), Refusal> {
    match parameters.find(|name| *name == "config" || name.starts_with("file:")) {
        Some(name) => Err(Refusal::Invalid(format!(
            "models are loaded as they are: there is no parameter \"{name}\" here"
        ))),
        None => Ok(()),
    }
}
