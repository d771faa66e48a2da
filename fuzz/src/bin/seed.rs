//! Writes the corpus with which fuzzing begins: the segments of a real journal.

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new("corpus/open_journal");
    std::fs::create_dir_all(folder)?;
    for (number, seed) in bridge_queue::hostile::seeds().into_iter().enumerate() {
        std::fs::write(folder.join(format!("real-{number}")), seed)?;
    }
    Ok(())
}
