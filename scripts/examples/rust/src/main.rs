//! A service in small: all prompts wait in one queue, and their texts are written in the order of the prompts.
//!
//!     service BUNDLE [--regex EXPRESSION] PROMPT...
use speccompile::{Bundle, Error, Request, Scheduler};

fn answer(folder: &str, regex: Option<&String>, prompts: &[String]) -> Result<(), Error> {
    let bundle = Bundle::open(folder, &[])?;
    let scheduler = Scheduler::new(&bundle, &[])?;
    let take = |prompt: &String| {
        let mut request = Request::new(prompt)?.integer("max_new_tokens", 64)?;
        if let Some(expression) = regex {
            request = request.constraint("regex", expression)?;
        }
        scheduler.submit(&request, &[])
    };
    let taken = prompts.iter().map(take).collect::<Result<Vec<_>, _>>()?;
    for submission in taken {
        let pieces = submission.map(|piece| piece.map(|delta| delta.text)).collect::<Result<String, _>>()?;
        println!("{}", pieces);
    }
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let regex = words.get(2).filter(|_| words[1] == "--regex");
    let first = if regex.is_some() { 3 } else { 1 };
    if words.len() <= first {
        eprintln!("usage: service BUNDLE [--regex EXPRESSION] PROMPT...");
        std::process::exit(2);
    }
    if let Err(error) = answer(&words[0], regex, &words[first..]) {
        eprintln!("error: {}", error);
        if !error.hint.is_empty() {
            eprintln!("hint: {}", error.hint);
        }
        std::process::exit(error.exit_code);
    }
}
